"""Image classifiers: what recipe `resnet` has of its own, from its data to its server.

recipe.py the hooks that run, work, fetch, serve and report call, images.py the
data, network.py the model, augment.py the random crops and flips, score.py the test scores, gate.py the decision,
content.py and page.html.j2 the report, v2.py and server.py the Open Inference Protocol. recipes/resnet.py trains.
"""
