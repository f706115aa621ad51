import os
import sys

# the builder of results directories stands beside the reader's own tests
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "results"))
