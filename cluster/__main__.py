"""`cluster/python cluster COMMAND`: Python puts the folder that it runs on sys.path, so the package is found.

Nothing has to be installed for it, and no PYTHONPATH leaks into pip, go and ansible-playbook.
"""

import sys

from embedded_cluster import commands

sys.exit(commands.main())
