"""`cluster/python cluster COMMAND`: Python looks for modules in the folder that it runs, so the package is found.

Nothing is installed for it, and no PYTHONPATH goes on to pip, go and ansible-playbook.
"""

import sys

from embedded_cluster import commands

sys.exit(commands.main())
