"""What tokens prove: given an issuer that runs and may lie, when a token is shown, then it counts or it does not."""

import asyncio
import functools
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from commonpool.access.oidc import AGAIN_NS, Discovery, Issuer, Person
from commonpool.access.problems import AwayError, CredentialError
from commonpool.access.web import ANSWER_BYTES_MAX, Web
from commonpool.config.structs import Oidc
from tests.access.house import SECOND, House, plain_web
from tests.access.issuer import NOW_S, Json, TestIssuer, b64, sealed, unsigned


@pytest.fixture
def known(house: House, oidc: Oidc) -> Issuer:
    return Issuer(oidc, plain_web(), lambda: house.now)


def refused(house: House, known: Issuer, token: str) -> str:
    with pytest.raises(CredentialError) as caught:
        house.run(known.bearer(token))
    assert token not in str(caught.value)
    return str(caught.value)


def test_a_token_names_a_machine(house: House, issuer: TestIssuer, known: Issuer) -> None:
    assert house.run(known.bearer(issuer.token())) == Person(issuer.url, "machine-7")


def test_a_token_may_name_a_person_with_groups(house: House, issuer: TestIssuer, known: Issuer) -> None:
    token = issuer.token(sub="7", email="Ann@House.example", email_verified=True, groups=["/a", "/b"])
    assert house.run(known.bearer(token)) == Person(issuer.url, "7", "ann@house.example", ("/a", "/b"))


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_an_address_that_is_not_verified_is_none(
    house: House, issuer: TestIssuer, known: Issuer, verified: object
) -> None:
    token = issuer.token(email="ann@house.example", email_verified=verified)
    assert house.run(known.bearer(token)).email == ""


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"aud": "commonpool"}, "invalid claim: aud"),  # what a browser gets at a login
        ({"aud": ["a", "b"]}, "invalid claim: aud"),
        ({"aud": []}, "invalid claim: aud"),
        ({"aud": None}, "missing claim: aud"),
        ({"aud": {"pool-api": 1}}, "invalid claim: aud"),
        ({"iss": "https://elsewhere.example"}, "invalid claim: iss"),
        ({"iss": None}, "missing claim: iss"),
        ({"iss": ["http://127.0.0.1"]}, "invalid claim: iss"),
        ({"exp": NOW_S - 31}, "expired token: exp"),
        ({"exp": None}, "missing claim: exp"),
        ({"exp": "never"}, "invalid claim: exp"),
        ({"exp": float("nan")}, "invalid claim: exp"),
        ({"nbf": NOW_S + 31}, "invalid claim: nbf"),
        ({"iat": NOW_S + 31}, "invalid claim: iat"),
        ({"sub": None}, "missing claim: sub"),
        ({"sub": 7}, "invalid claim: sub"),
        ({"sub": "a\nb"}, "names nobody"),
        ({"sub": "a" * 256}, "names nobody"),
        ({"groups": {"a": 1}}, "claim groups is not a list"),
        ({"groups": ["g"] * 1001}, "claim groups is not a list of at most 1000 groups"),
        ({"cnf": {"jkt": "x"}}, "not for showing as it is"),
    ],
)
def test_a_claim_that_is_wrong(
    house: House, issuer: TestIssuer, known: Issuer, claims: dict[str, Any], says: str
) -> None:
    assert says in refused(house, known, issuer.token(**claims))


@pytest.mark.parametrize(
    "claims", [{"aud": ["x", "pool-api"]}, {"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"iat": None}]
)
def test_clocks_may_be_apart_a_little_and_there_may_be_several_audiences(
    house: House, issuer: TestIssuer, known: Issuer, claims: dict[str, Any]
) -> None:
    assert house.run(known.bearer(issuer.token(**claims))).subject == "machine-7"


@pytest.mark.parametrize("typ", ["logout+jwt", "dpop+jwt", "secevent+jwt", "refresh"])
def test_a_token_of_another_kind_is_none(house: House, issuer: TestIssuer, known: Issuer, typ: str) -> None:
    issuer.twist = lambda _, header: header.update(typ=typ)
    assert "not for showing as it is" in refused(house, known, issuer.token())


@pytest.mark.parametrize("typ", ["at+jwt", "JWT", "application/at+jwt"])
def test_a_token_says_its_kind_in_several_ways(house: House, issuer: TestIssuer, known: Issuer, typ: str) -> None:
    issuer.twist = lambda _, header: header.update(typ=typ)
    assert house.run(known.bearer(issuer.token())).subject == "machine-7"


# -- signatures --------------------------------------------------------------------------------------------------------


def test_nobody_signs_with_none(house: House, issuer: TestIssuer, known: Issuer) -> None:
    issuer.sign = unsigned
    assert "unsupported algorithm" in refused(house, known, issuer.token())


def test_a_public_key_is_no_secret(house: House, issuer: TestIssuer, known: Issuer) -> None:
    """Whoever knows the public key makes an HMAC with it, in each form in which it is published."""
    public = issuer.keys[0]
    assert isinstance(public, ECKey)
    for secret in (public.as_pem(private=False), json.dumps(public.as_dict(private=False)).encode()):
        issuer.sign = functools.partial(sealed, secret=secret)
        assert "unsupported algorithm" in refused(house, known, issuer.token())


def test_a_secret_that_the_issuer_publishes_signs_nothing(house: House, issuer: TestIssuer, known: Issuer) -> None:
    shared = {"kty": "oct", "kid": "shared", "k": b64(b"0" * 32)}
    issuer.published = [shared, issuer.keys[0].as_dict(private=False)]
    issuer.twist = lambda _, header: header.update(kid="shared")
    issuer.sign = functools.partial(sealed, secret=b"0" * 32)
    assert "unsupported algorithm" in refused(house, known, issuer.token())


def test_a_stranger_s_signature_is_none(house: House, issuer: TestIssuer, known: Issuer) -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "one"})
    issuer.sign = lambda claims, header: jwt.encode(header, claims, stranger)
    assert "bad signature" in refused(house, known, issuer.token())


def test_a_key_in_the_token_itself_is_not_believed(house: House, issuer: TestIssuer, known: Issuer) -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "own"})
    header = {"jwk": stranger.as_dict(private=False), "jku": "http://127.0.0.1:9/keys"}
    for kid in ("one", "own"):
        issuer.twist = lambda _, h, kid=kid: h.update(header, kid=kid)  # type: ignore[misc] # bound now
        issuer.sign = lambda claims, h: jwt.encode(h, claims, stranger)
        assert "not valid here" in refused(house, known, issuer.token())


def test_a_changed_claim_breaks_the_signature(house: House, issuer: TestIssuer, known: Issuer) -> None:
    head, _, signature = issuer.token().split(".")
    _, other, _ = issuer.token(sub="machine-8").split(".")
    assert "bad signature" in refused(house, known, f"{head}.{other}.{signature}")


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "e30.e30.e30", "é.é.é", "e30.e30.", "a" * 300_000 + ".b.c"])
def test_what_is_no_token(house: House, known: Issuer, token: str) -> None:
    with pytest.raises(CredentialError):
        house.run(known.bearer(token))


KINDS: dict[str, Callable[[], Key]] = {
    "RS256": lambda: RSAKey.generate_key(2048, {"kid": "k"}),
    "PS512": lambda: RSAKey.generate_key(2048, {"kid": "k"}),
    "ES384": lambda: ECKey.generate_key("P-384", {"kid": "k"}),
    "Ed25519": lambda: OKPKey.generate_key("Ed25519", {"kid": "k"}),
}


@pytest.mark.parametrize("algorithm", KINDS)
def test_an_issuer_signs_in_several_ways(house: House, issuer: TestIssuer, known: Issuer, algorithm: str) -> None:
    issuer.keys = [KINDS[algorithm]()]
    issuer.twist = lambda _, header: header.update(alg=algorithm)
    assert house.run(known.bearer(issuer.token())).subject == "machine-7"


def test_keys_of_another_use_or_kind_or_that_are_broken_do_not_count(
    house: House, issuer: TestIssuer, known: Issuer
) -> None:
    good = issuer.keys[0].as_dict(private=False)
    weak = {"kty": "RSA", "kid": "weak", "n": b64(b"\0\0" + b"\xff" * 128), "e": "AQAB"}
    broken: list[Json] = [
        {"kty": "EC", "kid": "x"}, {"kty": "RSA"}, {"kty": "RSA", "n": 7, "e": "AQAB"}, {"kty": "AKP"}, {}, weak
    ]  # fmt: skip
    issuer.published = [*broken, good]
    assert house.run(known.bearer(issuer.token())).subject == "machine-7"
    for published in (broken, [{**good, "use": "enc"}], []):
        house.now += 3600 * SECOND
        issuer.now_s = lambda: house.now // SECOND
        issuer.published = published
        with pytest.raises(AwayError, match="publishes no key"):
            house.run(known.bearer(issuer.token()))


# -- keys that change --------------------------------------------------------------------------------------------------


def test_a_new_key_counts_as_soon_as_something_is_signed_with_it(
    house: House, issuer: TestIssuer, known: Issuer
) -> None:
    old = issuer.token()
    house.run(known.bearer(old))
    house.now += AGAIN_NS
    issuer.rotate("two")
    assert house.run(known.bearer(issuer.token())).subject == "machine-7"
    assert house.run(known.bearer(old)).subject == "machine-7"
    assert issuer.asked["/keys"] == 2


def test_a_key_that_is_withdrawn_counts_ten_minutes_more_at_most(
    house: House, issuer: TestIssuer, known: Issuer
) -> None:
    old = issuer.token(exp=NOW_S + 3600)
    house.run(known.bearer(old))
    issuer.rotate("two", keep=False)
    house.now += 600 * SECOND - 1
    assert house.run(known.bearer(old)).subject == "machine-7"
    house.now += 1
    assert "invalid key id" in refused(house, known, old)


def test_made_up_keys_do_not_have_the_issuer_asked_for_each(house: House, issuer: TestIssuer, known: Issuer) -> None:
    house.run(known.bearer(issuer.token()))
    for n in range(20):
        issuer.twist = lambda _, header, n=n: header.update(kid=f"made-up-{n}")  # type: ignore[misc] # bound now
        house.now += SECOND
        refused(house, known, issuer.token())
    assert issuer.asked["/keys"] == 3  # at the first, after ten seconds, and after ten more


def test_one_question_serves_all_who_wait_for_it(house: House, issuer: TestIssuer, known: Issuer) -> None:
    token = issuer.token()

    async def story() -> None:
        await asyncio.gather(*(known.bearer(token) for _ in range(20)))

    house.run(story())
    assert (issuer.asked["/keys"], issuer.asked["/.well-known/openid-configuration"]) == (1, 1)


# -- an issuer that is away --------------------------------------------------------------------------------------------


def test_while_it_is_away_its_keys_count_for_an_hour(house: House, issuer: TestIssuer, known: Issuer) -> None:
    token = issuer.token(exp=NOW_S + 100_000)
    house.run(known.bearer(token))
    issuer.stop()
    house.now += 3599 * SECOND
    assert house.run(known.bearer(token)).subject == "machine-7"
    house.now += SECOND
    with pytest.raises(AwayError, match=r"127\.0\.0\.1 cannot be reached"):
        house.run(known.bearer(token))
    issuer.start()
    with pytest.raises(AwayError):  # it is not asked again at once
        house.run(known.bearer(token))
    house.now += AGAIN_NS
    assert house.run(known.bearer(token)).subject == "machine-7"


DISCOVERY = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((404, {}, b"nothing here"), "answers 404 and not as an issuer does"),
        ((200, {}, b"[1, 2]"), "answers 200 and not as an issuer does"),
        ((200, {}, b'{"issuer": "x"}'), "answers 200 and not as an issuer does"),
        ((302, {"location": "http://127.0.0.1:9/"}, b""), "answers 302 and not as an issuer does"),
        ((200, {}, b" " * (ANSWER_BYTES_MAX + 1)), f"answers with more than {ANSWER_BYTES_MAX} bytes"),
        ((200, {"content-encoding": "gzip"}, b"\x1f\x8b" + b"\0" * 50), "answers 200 and not as an issuer does"),
    ],
)
def test_what_is_no_issuer_s_answer(
    house: House, issuer: TestIssuer, known: Issuer, answer: tuple[int, Json, bytes], says: str
) -> None:
    issuer.answers[DISCOVERY] = answer
    with pytest.raises(AwayError, match=says):
        house.run(known.discovery())


def test_one_that_names_itself_otherwise_is_not_it(house: House, issuer: TestIssuer, known: Issuer) -> None:
    issuer.discovery = {"issuer": issuer.url + "/"}
    with pytest.raises(AwayError, match="names itself another issuer"):
        house.run(known.discovery())


def test_one_that_is_silent_is_away(house: House, issuer: TestIssuer, oidc: Oidc) -> None:
    issuer.stalls = threading.Event()
    with pytest.raises(AwayError, match="does not answer within"):
        house.run(Issuer(oidc, plain_web(call_s=0.05), lambda: house.now).discovery())
    issuer.stalls.set()


def test_it_is_connected_to_only_where_the_product_may(house: House, issuer: TestIssuer, oidc: Oidc) -> None:
    there = Issuer(oidc, plain_web(destinations=("127.0.0.0/8",)), lambda: house.now)
    assert house.run(there.bearer(issuer.token())).subject == "machine-7"
    for destinations in ((), ("10.0.0.0/8", "id.example")):
        elsewhere = Issuer(oidc, plain_web(destinations=destinations), lambda: house.now)
        with pytest.raises(AwayError, match="is not one of the destinations under outgoing"):
            house.run(elsewhere.discovery())


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]"])
def test_an_issuer_that_sends_it_to_a_cloud_s_credentials_gets_nothing_there(
    house: House, issuer: TestIssuer, known: Issuer, host: str
) -> None:
    issuer.discovery = {"jwks_uri": f"http://{host}/latest/meta-data/"}
    with pytest.raises(AwayError, match="where machines get their credentials from a cloud"):
        house.run(known.bearer(issuer.token()))


class Elsewhere(Web):
    """A net in which the issuer answers this."""

    def __init__(self, answer: Discovery) -> None:
        super().__init__()
        self._answer = answer

    async def call(self, method: str, url: str, answer: Any, **_: Any) -> tuple[int, Any]:  # noqa: ARG002
        assert (method, url) == ("GET", "https://id.example/realms/house/.well-known/openid-configuration")
        return 200, self._answer


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_over_tls_all_of_it_is(house: House, endpoint: str) -> None:
    name = "https://id.example/realms/house/"
    sound = Discovery(name, "https://id.example/authorize", "https://id.example/token", "https://id.example/keys")
    open_line = msgspec.structs.replace(sound, **{endpoint: "http://id.example/x"})
    settings = Oidc(name, "commonpool")
    assert house.run(Issuer(settings, Elsewhere(sound), lambda: house.now).discovery()) == sound
    with pytest.raises(AwayError, match=r"an endpoint without TLS: http://id\.example/x"):
        house.run(Issuer(settings, Elsewhere(open_line), lambda: house.now).discovery())
