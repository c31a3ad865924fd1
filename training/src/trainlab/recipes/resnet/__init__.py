"""Image classification, from its data to its server: everything specific to this recipe is here.

resnet_recipe.py has the hooks, resnet_trainer.py trains, images.py is the data, network.py the model, augment.py the random
crops and flips, image_score.py the test scores, accuracy_gate.py the decision, image_report.py the report, v2.py and
image_server.py the Open Inference Protocol.
"""
