"""Class matrices on several machines: a server on each, and a trainer that uses them."""

from tf_largeout.distribute.backup import Backup as Backup
from tf_largeout.distribute.connect import connect as connect
from tf_largeout.distribute.fit import fit as fit
