"""The law of the contest: the service gap between tenants that are both backlogged stays bounded.

DESIGN section 2, rule 2: under 2·max(w_p·L_in, w_q·M), where L_in is the longest prompt, M the KV tokens of the whole
deployment, w_p = 1 and w_q = 2. Service counts as it is given: the prompt at dispatch, the output as it is produced,
nothing for an attempt that failed; and by weight.
"""

from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.model import Deployment, Outcome, Usage
from tests.core.worlds import S, Paced, policy, tenant

INPUT_MAX = 400
CONTEXT = 500
NS_PER_TOKEN = S // 100


class Fair(Paced):
    """A world that can say how much service each tenant has been given until now."""

    given: dict[str, int]

    def given_to(self, name: str) -> int:
        running = [each for each in self.running if each.startswith(name)]
        return self.done.get(name, 0) + sum(self.so_far(each) for each in running)

    def so_far(self, name: str) -> int:
        produced = (self.now - self.began[name]) // self.ns_per_token - self.tokens_in[name]
        return self.tokens_in[name] + min(2 * self.out[name], max(0, produced))
