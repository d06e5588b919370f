"""People and machines that come: given what they show, when they call, then they are who they are, or nobody."""

import asyncio
import http.client
from contextlib import closing
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from commonpool.access.callers import Binding, Caller
from commonpool.access.guesses import PACES
from commonpool.access.logins import LOGIN_S
from commonpool.access.people import LoggedIn, People, Visit
from commonpool.access.problems import (
    AccountError,
    AwayError,
    CredentialError,
    ForeignPageError,
    NoRoleError,
    OpenLineError,
    TooManyGuessesError,
)
from commonpool.access.sessions import LIFE_NS
from commonpool.config.structs import Oidc, Role
from tests.access.house import PASSWORD, ROLES, SECOND, House, sent, visit
from tests.access.issuer import PERSON, Json, TestIssuer, unsigned

OTHER = "another horse battery"
OWN = {"origin": "http://127.0.0.1:8081"}
BO = Caller("account:bo", "person", (Binding("viewer"),))
ANN = Caller("oidc:ann@house.example", "person", (Binding("operator"), Binding("tenant-admin", "support")))


def with_account(house: House, name: str = "bo") -> LoggedIn:
    """Somebody with an account, just logged in."""
    if house.store.account(name) is None:
        house.run(house.people.accounts.add(name, "person", PASSWORD))
    return house.run(house.people.log_in(name, PASSWORD, visit()))


def caller(house: House, shown: Visit, method: str = "GET", people: People | None = None) -> Caller | None:
    return house.run((people or house.people).caller(method, shown))


# -- accounts and their sessions ---------------------------------------------------------------------------------------


def test_who_logs_in_has_the_roles_of_the_account(alone: House) -> None:
    opened = with_account(alone)
    assert opened.caller == BO
    assert opened.expires_ns == alone.now + LIFE_NS
    assert opened.cookie.startswith("commonpool=")
    assert opened.cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
    assert caller(alone, visit(sent(opened.cookie))) == BO


def test_roles_are_those_of_this_moment(alone: House) -> None:
    shown = visit(sent(with_account(alone).cookie))
    alone.change(roles=(*ROLES, Role("tenant-admin", "support", "account", "bo")))
    found = caller(alone, shown)
    assert found is not None
    assert found.bindings == (Binding("viewer"), Binding("tenant-admin", "support"))
    alone.change(roles=())
    assert caller(alone, shown) == Caller("account:bo", "person", ())


def test_an_account_is_no_group_address_or_subject_of_that_name(alone: House) -> None:
    alone.change(roles=(Role("operator", None, "group", "bo"), Role("auditor", None, "subject", "bo")))
    assert with_account(alone).caller.bindings == ()


def test_who_shows_nothing_is_nobody(house: House) -> None:
    for shown in (
        visit(),
        visit("other=1"),
        visit("commonpool="),
        visit("", {"authorization": "Bearer cp_abc_def"}),
        visit("", {"authorization": "Basic YTpi"}),
        visit("", {"authorization": ""}),
    ):
        assert caller(house, shown, "POST") is None


def test_a_session_that_there_is_not_is_no_reason_to_be_local(alone: House) -> None:
    with pytest.raises(CredentialError, match="the session is over; log in again at /login"):
        caller(alone, visit("commonpool=made-up"))


@pytest.mark.parametrize("password", [OTHER, "", PASSWORD.upper(), PASSWORD + "\0", "x" * 100_000])
def test_a_wrong_password_says_no_more_than_a_wrong_name(alone: House, password: str) -> None:
    with_account(alone)
    said = set()
    for name in ("bo", "nobody", "", "B" * 500, "erp"):
        with pytest.raises(CredentialError) as caught:
            alone.run(alone.people.log_in(name, password, visit(address=name)))
        said.add(str(caught.value))
    assert said == {"the name or the password is wrong"}


def test_a_session_ends_when_its_owner_logs_out(alone: House) -> None:
    shown, other = visit(sent(with_account(alone).cookie)), visit(sent(with_account(alone).cookie))
    assert alone.run(alone.people.log_out(shown)).startswith("commonpool=; Path=/; Max-Age=0;")
    alone.run(alone.people.log_out(visit()))
    with pytest.raises(CredentialError):
        caller(alone, shown)
    assert caller(alone, other) == BO


@pytest.mark.parametrize("change", ["disable", "remove", "password"])
def test_all_sessions_of_an_account_end_with_it_in_every_process(alone: House, change: str) -> None:
    another = alone.another()
    shown = [visit(sent(with_account(alone).cookie)) for _ in range(3)]
    stranger = visit(sent(with_account(alone, "cy").cookie))
    for each in shown:
        assert caller(alone, each, people=another) == BO
    match change:
        case "disable":
            alone.run(alone.people.accounts.disable("bo"))
        case "remove":
            alone.run(alone.people.accounts.remove("bo"))
        case _:
            alone.run(alone.people.accounts.set_password("bo", OTHER))
    for people in (alone.people, another):
        for each in shown:
            with pytest.raises(CredentialError):
                caller(alone, each, people=people)
        assert caller(alone, stranger, people=people) is not None


def test_a_login_that_began_before_the_password_changed_opens_nothing(alone: House) -> None:
    """Whatever the order in which both reach the store."""
    with_account(alone)

    async def story() -> list[object]:
        return await asyncio.gather(
            *(alone.people.log_in("bo", PASSWORD, visit(address=f"192.0.2.{n}")) for n in range(4)),
            alone.people.accounts.set_password("bo", OTHER),
            *(alone.people.log_in("bo", PASSWORD, visit(address=f"192.0.2.{n}")) for n in range(4, 8)),
            return_exceptions=True,
        )

    for result in alone.run(story()):
        if isinstance(result, LoggedIn):
            with pytest.raises(CredentialError):
                caller(alone, visit(sent(result.cookie)))


def test_guesses_run_out_for_an_account_and_come_back_with_time(alone: House) -> None:
    with_account(alone)
    for n in range(PACES["account"][0]):
        with pytest.raises(CredentialError):
            alone.run(alone.people.log_in("bo", OTHER, visit(address=f"198.51.100.{n}")))
    with pytest.raises(TooManyGuessesError, match="try again in 60 s") as caught:  # though it is the right one
        alone.run(alone.people.log_in("bo", PASSWORD, visit(address="198.51.100.9")))
    assert alone.run(alone.people.log_in("bo", PASSWORD, visit())).caller == BO  # where the owner was before
    alone.now += caught.value.wait_ns
    assert alone.run(alone.people.log_in("bo", PASSWORD, visit(address="198.51.100.9"))).caller == BO


def test_many_guesses_at_once_are_as_many_as_one_after_the_other(alone: House) -> None:
    alone.run(alone.people.accounts.add("bo", "person", PASSWORD))

    async def story() -> list[object]:
        tries = (alone.people.log_in("bo", OTHER, visit(address=f"198.51.100.{n}")) for n in range(40))
        return await asyncio.gather(*tries, return_exceptions=True)

    kinds = [type(result) for result in alone.run(story())]
    assert kinds.count(CredentialError) == PACES["account"][0]
    assert kinds.count(TooManyGuessesError) == 40 - PACES["account"][0]


def test_names_that_there_are_not_run_out_like_those_there_are(alone: House) -> None:
    with_account(alone, "bo")
    for name in ("cy", "bo"):
        kinds = []
        for n in range(8):
            with pytest.raises((CredentialError, TooManyGuessesError)) as caught:
                alone.run(alone.people.log_in(name, OTHER, visit(address=f"198.51.100.{n}")))
            kinds.append(caught.type)
        assert kinds == [CredentialError] * 5 + [TooManyGuessesError] * 3


# -- browsers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_a_change_with_a_cookie_is_from_a_page_of_ours(alone: House, method: str) -> None:
    cookie = sent(with_account(alone).cookie)
    assert caller(alone, visit(cookie, OWN), method) == BO
    assert caller(alone, visit(cookie, {"sec-fetch-site": "same-origin"}), method) == BO
    for headers in (
        {},
        {"origin": "https://evil.example"},
        {**OWN, "sec-fetch-site": "cross-site"},
        {"origin": "null"},
    ):
        with pytest.raises(ForeignPageError, match="from a page of this host alone"):
            caller(alone, visit(cookie, headers), method)


def test_a_foreign_page_does_not_even_learn_whether_the_session_is_good(alone: House) -> None:
    with pytest.raises(ForeignPageError):
        caller(alone, visit("commonpool=made-up", {"origin": "https://evil.example"}), "POST")


def test_over_tls_a_cookie_is_one_of_this_host_alone(alone: House) -> None:
    alone.run(alone.people.accounts.add("bo", "person", PASSWORD))
    opened = alone.run(alone.people.log_in("bo", PASSWORD, visit(tls=True, here=False)))
    assert opened.cookie.startswith("__Host-commonpool=")
    assert opened.cookie.endswith("; Secure")
    assert caller(alone, visit(sent(opened.cookie), tls=True)) == BO
    assert caller(alone, visit(sent(opened.cookie).removeprefix("__Host-"), tls=True)) is None
    assert caller(alone, visit(sent(opened.cookie))) is None


def test_behind_a_proxy_that_ends_tls_it_is_over_tls(alone: House) -> None:
    alone.change(url="https://pool.example")
    alone.run(alone.people.accounts.add("bo", "person", PASSWORD))
    opened = alone.run(alone.people.log_in("bo", PASSWORD, visit(here=False, host="pool.example")))
    assert opened.cookie.startswith("__Host-commonpool=")
    assert caller(alone, visit(sent(opened.cookie), host="Pool.example")) == BO
    own = {"origin": "https://pool.example"}
    assert caller(alone, visit(sent(opened.cookie), own, host="pool.example"), "POST") == BO


def test_no_password_goes_over_an_open_line(alone: House) -> None:
    alone.run(alone.people.accounts.add("bo", "person", PASSWORD))
    for shown in (
        visit(here=False),
        visit(here=False, host="pool.example"),
        visit("", {"x-forwarded-proto": "https"}, here=False),
    ):
        with pytest.raises(OpenLineError, match="use https, or a tunnel"):
            alone.run(alone.people.log_in("bo", PASSWORD, shown))


# -- one's own password ------------------------------------------------------------------------------------------------


def test_who_is_logged_in_chooses_another_password(alone: House) -> None:
    here, elsewhere = visit(sent(with_account(alone).cookie), OWN), visit(sent(with_account(alone).cookie))
    opened = alone.run(alone.people.change_password(PASSWORD, OTHER, here))
    assert caller(alone, visit(sent(opened.cookie))) == BO
    for over in (here, elsewhere):
        with pytest.raises(CredentialError):
            caller(alone, over)
    with pytest.raises(CredentialError):
        alone.run(alone.people.log_in("bo", PASSWORD, visit()))
    assert alone.run(alone.people.log_in("bo", OTHER, visit())).caller == BO


def test_only_with_the_current_one_and_only_so_often(alone: House) -> None:
    shown = visit(sent(with_account(alone).cookie), OWN)
    for _ in range(PACES["known"][0]):
        with pytest.raises(CredentialError, match="the current password is wrong"):
            alone.run(alone.people.change_password(OTHER, OTHER, shown))
    with pytest.raises(TooManyGuessesError):
        alone.run(alone.people.change_password(PASSWORD, OTHER, shown))
    alone.now += 60 * SECOND
    with pytest.raises(AccountError, match="at least 12"):
        alone.run(alone.people.change_password(PASSWORD, "short", shown))
    with pytest.raises(CredentialError, match="only who is logged in to an account"):
        alone.run(alone.people.change_password(PASSWORD, OTHER, visit()))
    assert caller(alone, shown) == BO


# -- services ----------------------------------------------------------------------------------------------------------


def test_a_key_of_a_service_has_the_roles_of_the_service_while_it_may_be_used(alone: House) -> None:
    accounts = alone.people.accounts
    alone.run(accounts.add("erp", "service", ""))
    erp = Caller("account:erp", "service", (Binding("finance"),))
    assert alone.run(alone.people.service("erp")) == erp
    alone.run(accounts.disable("erp"))
    assert alone.run(alone.people.service("erp")) is None
    alone.run(accounts.enable("erp"))
    assert alone.run(alone.people.service("erp")) == erp
    alone.run(accounts.remove("erp"))
    assert alone.run(alone.people.service("erp")) is None


def test_a_person_s_account_owns_no_key(alone: House) -> None:
    with_account(alone)
    assert alone.run(alone.people.service("bo")) is None
    assert alone.run(alone.people.service("")) is None


def bearer(token: str, cookie: str = "") -> Visit:
    return visit(cookie, {"authorization": f"Bearer {token}"})


def test_a_machine_comes_with_a_token_of_the_issuer(house: House, issuer: TestIssuer) -> None:
    machine = Caller("oidc:machine-7", "service", (Binding("developer", "support"),))
    assert caller(house, bearer(issuer.token()), "POST") == machine
    assert caller(house, visit("", {"authorization": f"bearer  {issuer.token()} "}), "POST") == machine


def test_a_machine_is_not_called_as_a_person_is(house: House, issuer: TestIssuer) -> None:
    found = caller(house, bearer(issuer.token(sub="ann@house.example")))
    assert found == Caller("oidc:sub:ann@house.example", "service", ())
    unverified = issuer.token(sub="machine-7", email="ann@house.example", email_verified=False)
    assert caller(house, bearer(unverified)) == Caller("oidc:machine-7", "service", (Binding("developer", "support"),))


def test_a_person_may_bring_a_token_too(house: House, issuer: TestIssuer) -> None:
    token = issuer.token(sub="7", email="ann@house.example", email_verified=True, groups=["/gpu/operators"])
    assert caller(house, bearer(token)) == ANN


def test_a_header_wins_over_a_cookie(house: House, issuer: TestIssuer) -> None:
    cookie = sent(with_account(house).cookie)
    found = caller(house, bearer(issuer.token(), cookie), "POST")
    assert found is not None
    assert found.name == "oidc:machine-7"
    assert caller(house, visit(cookie, {"authorization": "Bearer cp_a_b", **OWN}), "POST") is None
    with pytest.raises(CredentialError):
        caller(house, bearer(issuer.token(aud="x"), cookie))


def test_without_an_audience_no_token_is_taken(house: House, issuer: TestIssuer, oidc: Oidc) -> None:
    house.change(oidc=Oidc(issuer.url, oidc.client_id, oidc.client_secret))
    assert caller(house, bearer(issuer.token())) is None
    house.change(oidc=None)
    assert caller(house, bearer(issuer.token())) is None
    assert issuer.asked == {}


# -- login by the issuer -----------------------------------------------------------------------------------------------


class Browser:
    """Somebody's browser on the way to the issuer and back."""

    def __init__(self, house: House, after: str = "/") -> None:
        self._house = house
        begun = house.run(house.people.begin(after, visit()))
        self.set_cookie, self.cookie, self.url = begun.cookie, sent(begun.cookie), begun.url

    def agree(self, **changed: str | None) -> dict[str, str]:
        """What the issuer sends back with; `changed` of what it was asked with."""
        url = httpx.URL(self.url)
        query = {name: value for name, value in {**url.params, **changed}.items() if value is not None}
        with closing(http.client.HTTPConnection(url.host, url.port)) as connection:
            connection.request("GET", f"{url.path}?{urlencode(query)}")
            answer = connection.getresponse()
        assert answer.status == 302
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    def come_back(self, query: dict[str, str], cookie: str | None = None) -> tuple[LoggedIn, str]:
        shown = visit(self.cookie if cookie is None else cookie)
        return self._house.run(self._house.people.finish(query, shown))


def test_who_logs_in_at_the_issuer_is_logged_in_here(house: House) -> None:
    browser = Browser(house, "/keys?of=me")
    opened, after = browser.come_back(browser.agree())
    assert (opened.caller, after) == (ANN, "/keys?of=me")
    assert opened.cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
    assert caller(house, visit(sent(opened.cookie))) == ANN
    assert caller(house, visit(sent(opened.cookie), OWN), "POST") == ANN


def test_the_issuer_is_asked_with_everything_that_binds_the_login(house: House, issuer: TestIssuer) -> None:
    url = httpx.URL(Browser(house).url)
    assert str(url).startswith(f"{issuer.url}/authorize?realm=house&")
    asked = dict(url.params)
    assert {name: asked[name] for name in ("response_type", "client_id", "redirect_uri", "scope")} == {
        "response_type": "code",
        "client_id": "commonpool",
        "redirect_uri": "http://127.0.0.1:8081/login/oidc/callback",
        "scope": "openid email groups",
    }
    assert asked["code_challenge_method"] == "S256"
    other = dict(httpx.URL(Browser(house).url).params)
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name]) == 43
        assert asked[name] != other[name]


def test_what_binds_it_is_sealed_in_a_cookie_that_comes_back_from_elsewhere(house: House) -> None:
    browser = Browser(house)
    assert browser.set_cookie.startswith("commonpool-login=")
    assert browser.set_cookie.endswith("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax")
    for name in ("state", "nonce"):
        assert httpx.URL(browser.url).params[name] not in browser.set_cookie
    house.change(url="https://pool.example")
    over_tls = house.run(house.people.begin("/", visit(host="pool.example"))).cookie
    assert over_tls.startswith("__Host-commonpool-login=")
    assert over_tls.endswith("; Secure")
    assert (
        "https%3A%2F%2Fpool.example%2Flogin%2Foidc%2Fcallback"
        in house.run(house.people.begin("/", visit(host="pool.example"))).url
    )


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x", ""])
def test_nobody_is_sent_elsewhere_in_the_end(house: House, after: str) -> None:
    browser = Browser(house, after)
    assert browser.come_back(browser.agree())[1] == "/"


def test_a_login_comes_back_to_the_browser_that_began_it(house: House) -> None:
    mine, theirs = Browser(house), Browser(house)
    query = mine.agree()
    for cookie in ("", "commonpool-login=x", "commonpool-login=é"):
        with pytest.raises(CredentialError, match="was not begun in this browser, or more than 10 minutes ago"):
            mine.come_back(query, cookie)
    with pytest.raises(CredentialError, match="was begun anew since"):
        mine.come_back(query, theirs.cookie)
    with pytest.raises(CredentialError, match="was begun anew since"):
        mine.come_back({**query, "state": ""})
    with pytest.raises(CredentialError, match="was begun anew since"):
        mine.come_back({"code": query["code"]})
    assert mine.come_back(query)[0].caller == ANN


def test_a_login_comes_back_once(house: House, issuer: TestIssuer) -> None:
    browser = Browser(house)
    query = browser.agree()
    browser.come_back(query)
    exchanged = issuer.asked["/token"]
    issuer.forgets_codes = False  # an issuer that would take the code again is not even asked
    with pytest.raises(CredentialError, match="was finished already"):
        browser.come_back(query)
    assert issuer.asked["/token"] == exchanged


def test_a_code_of_another_login_is_none(house: House) -> None:
    """It is stolen on its way, and brought in with a login of the thief's: PKCE and the nonce are another's."""
    victim, thief = Browser(house), Browser(house)
    stolen = victim.agree()["code"]
    with pytest.raises(CredentialError, match="did not take the code \\(invalid_grant\\)"):
        thief.come_back({**thief.agree(), "code": stolen})


def test_a_login_takes_ten_minutes_at_most(house: House, issuer: TestIssuer) -> None:
    quick, slow = Browser(house), Browser(house)
    queries = quick.agree(), slow.agree()
    house.now += LOGIN_S * SECOND
    issuer.now_s = lambda: house.now // SECOND
    assert quick.come_back(queries[0])[0].caller == ANN
    house.now += SECOND
    with pytest.raises(CredentialError, match="more than 10 minutes ago"):
        slow.come_back(queries[1])


def test_another_process_did_not_begin_it(house: House) -> None:
    browser = Browser(house)
    query = browser.agree()
    house.people = house.another()
    with pytest.raises(CredentialError, match="was not begun in this browser"):
        browser.come_back(query)


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"nonce": "another"}, "invalid claim: nonce"),
        ({"nonce": None}, "missing claim: nonce"),
        ({"aud": "another"}, "invalid claim: aud"),
        ({"aud": ["another", "third"]}, "invalid claim: aud"),
        ({"aud": ["commonpool", "another"]}, "missing claim: azp"),
        ({"azp": "another"}, "invalid claim: azp"),
        ({"iss": "https://elsewhere.example"}, "invalid claim: iss"),
        ({"exp": 1}, "expired token: exp"),
        ({"exp": None}, "missing claim: exp"),
        ({"iat": None}, "missing claim: iat"),
        ({"iat": 1_900_000_000}, "invalid claim: iat"),
        ({"nbf": 1_900_000_000}, "invalid claim: nbf"),
        ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "invalid claim: at_hash"),
        ({"sub": None}, "missing claim: sub"),
    ],
)
def test_an_issuer_that_lies_logs_nobody_in(house: House, issuer: TestIssuer, claims: Json, says: str) -> None:
    def twist(said: Json, _: Json) -> None:
        said.update(claims)
        for name in [name for name, value in said.items() if value is None]:
            del said[name]

    browser = Browser(house)
    query = browser.agree()
    issuer.twist = twist
    with pytest.raises(CredentialError, match=says):
        browser.come_back(query)
    assert house.store.accounts() == ()


def test_nobody_logs_in_with_a_token_that_nobody_signed(house: House, issuer: TestIssuer) -> None:
    browser = Browser(house)
    query = browser.agree()
    issuer.sign = unsigned
    with pytest.raises(CredentialError, match="unsupported algorithm"):
        browser.come_back(query)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"iss": "https://elsewhere.example"}, "of another issuer than the one that was asked"),
        ({"error": "access_denied"}, "the issuer says access_denied; log in again"),
        ({"error": "<script>alert(1)</script>"}, "the issuer says no; log in again"),
        ({"code": ""}, "gave no code"),
        ({"code": "c" * 5000}, "gave no code"),
        ({"code": "made-up"}, "did not take the code"),
    ],
)
def test_an_answer_that_is_no_yes(house: House, query: dict[str, str], says: str) -> None:
    browser = Browser(house)
    with pytest.raises(CredentialError, match=says):
        browser.come_back({**browser.agree(), **query})


def test_an_issuer_that_names_itself_in_its_answers_always_does(house: House, issuer: TestIssuer) -> None:
    issuer.discovery = {"authorization_response_iss_parameter_supported": True}
    browser = Browser(house)
    query = browser.agree()
    with pytest.raises(CredentialError, match="does not say that it is the issuer's"):
        browser.come_back({name: value for name, value in query.items() if name != "iss"})
    browser = Browser(house)
    assert browser.come_back(browser.agree())[0].caller == ANN


@pytest.mark.parametrize("methods", [["client_secret_post"], ["client_secret_basic"], ["private_key_jwt"]])
def test_the_client_proves_itself_as_the_issuer_likes(house: House, issuer: TestIssuer, methods: list[str]) -> None:
    issuer.discovery = {"token_endpoint_auth_methods_supported": methods}
    browser = Browser(house)
    assert browser.come_back(browser.agree())[0].caller == ANN


def test_a_public_client_has_pkce_alone(house: House, issuer: TestIssuer) -> None:
    house.change(oidc=Oidc(issuer.url, "commonpool"))
    browser = Browser(house)
    assert browser.come_back(browser.agree())[0].caller == ANN


def test_a_secret_that_is_not_there_is_for_the_log_and_not_for_everybody(
    house: House, issuer: TestIssuer, capsys: pytest.CaptureFixture[str]
) -> None:
    house.change(oidc=Oidc(issuer.url, "commonpool", "env:NOT_SET"))
    browser = Browser(house)
    with pytest.raises(AwayError, match=r"^nobody can log in by the issuer now; the product's log says why$"):
        browser.come_back(browser.agree())
    said = capsys.readouterr()  # where logs go depends on what has run before
    assert "environment variable NOT_SET is not set" in said.out + said.err


def test_who_has_no_role_here_has_no_session(house: House, issuer: TestIssuer) -> None:
    issuer.person = {**PERSON, "sub": "8", "email": "cy@house.example", "groups": ["/house"]}
    browser = Browser(house)
    with pytest.raises(NoRoleError, match=r"cy@house\.example has no role here; ask an operator for one"):
        browser.come_back(browser.agree())


def test_a_role_by_an_address_needs_it_verified(house: House, issuer: TestIssuer) -> None:
    issuer.person = {**PERSON, "email_verified": False}
    browser = Browser(house)
    opened, _ = browser.come_back(browser.agree())
    assert opened.caller == Caller("oidc:7", "person", (Binding("operator"),))  # by the group alone


def test_groups_are_in_the_claim_that_the_configuration_names(house: House, issuer: TestIssuer, oidc: Oidc) -> None:
    house.change(oidc=Oidc(issuer.url, oidc.client_id, oidc.client_secret, groups="teams"))
    issuer.person = {"sub": "9", "groups": ["/gpu/operators"], "teams": "/gpu/operators"}
    browser = Browser(house)
    assert browser.come_back(browser.agree())[0].caller == Caller("oidc:9", "person", (Binding("operator"),))


def test_with_another_issuer_the_sessions_of_this_one_are_over(house: House, oidc: Oidc) -> None:
    browser = Browser(house)
    shown = visit(sent(browser.come_back(browser.agree())[0].cookie))
    house.change(oidc=Oidc("https://id.example", oidc.client_id))
    with pytest.raises(CredentialError, match="of an issuer that does not count any more"):
        caller(house, shown)


def test_wrong_answers_run_out_for_an_address(house: House) -> None:
    browser = Browser(house)
    for _ in range(PACES["address"][0]):
        with pytest.raises(CredentialError):
            browser.come_back({"state": "x"})
    with pytest.raises(TooManyGuessesError):
        browser.come_back({"state": "x"})


def test_while_the_issuer_is_away_accounts_still_log_in(house: House, issuer: TestIssuer) -> None:
    issuer.stop()
    with pytest.raises(AwayError, match=r"127\.0\.0\.1 cannot be reached"):
        Browser(house)
    assert with_account(house).caller == BO
    issuer.start()


def test_without_an_issuer_nobody_logs_in_by_one(alone: House) -> None:
    assert alone.people.issuer() is None
    with pytest.raises(AwayError, match="no issuer is configured here"):
        Browser(alone)
    with pytest.raises(AwayError, match="no issuer is configured here"):
        alone.run(alone.people.finish({}, visit()))
