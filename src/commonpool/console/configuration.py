"""The configuration in force and its policies; what another text would change, and bringing that into force."""

from typing import Final

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire import config as wire
from commonpool.config import Kind
from commonpool.console.asking import RefusedError
from commonpool.console.frame import Form, Page, View, together

HERE: Final = "/settings/configuration"


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, refused: RefusedError | None = None, file: str = "", text: str = "") -> Response:
    configuration, policies = await together(
        view.get("/admin/v1/config", wire.Configuration), view.attempt("/admin/v1/policies", wire.PolicyFiles)
    )
    files = configuration.sources.files
    chosen = file if file in files else view.query.get("file", "")
    chosen = chosen if chosen in files else configuration.sources.main
    return view.render(
        "configuration.html",
        code=refused.status if refused else 200,
        sources=configuration.sources,
        revision=configuration.revision,
        policies=policies,
        refused=refused,
        file=chosen,
        text=text or files[chosen],
    )


async def change(view: View, form: Form) -> Response:
    """Show what a text would change, or bring it into force, as the button says."""
    configuration = await view.get("/admin/v1/config", wire.Configuration)
    file, text = form.get("file"), form.fields.get("text", "").replace("\r\n", "\n")
    if file not in configuration.sources.files:
        raise RefusedError(404, f"the configuration in force has no file {file!r}; open the page and choose one")
    revision = form.get("revision")
    seen = int(revision) if revision.isascii() and revision.isdigit() else configuration.revision
    sources = msgspec.structs.replace(configuration.sources, files={**configuration.sources.files, file: text})
    wanted = wire.Configuration(sources, seen)
    try:
        if form.get("do") == "apply":
            await view.send("POST", "/admin/v1/config/apply", wire.Changes, wanted)
            return view.go(HERE, said="configuration.applied")
        changes = await view.send("POST", "/admin/v1/config/diff", wire.Changes, wanted)
    except RefusedError as error:
        return await _page(view, error, file, text)
    return view.render(
        "configuration_change.html",
        changes=changes.changes,
        warnings=changes.warnings,
        fixed=[each.key for each in changes.changes if each.kind is Kind.RESTART],
        file=file,
        text=text,
        revision=changes.revision,
    )


PAGES = (Page(HERE, "configuration", show, change, needs=(Permission.READ_CONFIG,), platform=True),)
