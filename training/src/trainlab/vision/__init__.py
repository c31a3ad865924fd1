"""Image classifiers: what recipe `resnet` has of its own, from its data to its server.

image_recipe.py the hooks that run, work, fetch, serve and report call, images.py the
data, network.py the model, augment.py the random crops and flips, image_score.py the test scores, accuracy_gate.py the decision,
image_report.py and page.html.j2 the report, v2.py and image_server.py the Open Inference Protocol. recipes/resnet.py trains.
"""
