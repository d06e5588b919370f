"""What `commonpool doctor` does: `facts` looks at the machine, `judgement` says what is weak in what was seen.

The first half reads and changes nothing; the second is pure, so that each of its sentences is tested both ways.
"""

from commonpool.cli.checkup.facts import Facts, gather
from commonpool.cli.checkup.judgement import Finding, judge

__all__ = ["Facts", "Finding", "gather", "judge"]
