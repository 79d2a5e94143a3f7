"""The Hub stand-in's endpoints for uploads and searches; importing this module adds them.

One user, acme, may write to repositories below acme/ with the stand-in's token. Files that end in
.safetensors are large ones (LFS), whatever their size; their content goes to a store by sha256, so
that what an interrupted upload has sent is there already when it is tried again.
"""

from __future__ import annotations

import base64
import hashlib
import json

import hub_reading  # noqa: F401 (its endpoints come first)
import yaml
from hub_standin import KINDS, REPO, TOKEN, Repository, Request, front_matter, git_id, route

USER = "acme"
KIND = r"/api/(?P<kind>datasets|models)"
LARGE = (".safetensors", ".parquet", ".bin")


def may_write(request: Request, id: str) -> bool:
    """Sends the Hub's refusal, and says no, where the token is unknown or the namespace foreign."""
    if request.token != TOKEN:
        request.error(401, "", "Invalid username or password.")
        return False
    if id.split("/")[0] != USER:
        request.error(403, "", f'You don\'t have the rights to write to "{id.split("/")[0]}"')
        return False
    return True


def find_own(request: Request, kind: str, id: str, revision: str) -> tuple[Repository, str] | None:
    """The repository and its commit; None, with the answer sent, where they may not be written."""
    found = request.find(kind, id, revision)
    return found if found is not None and may_write(request, id) else None


@route("GET", "/api/whoami-v2")
def whoami(request: Request) -> None:
    if request.token == TOKEN:
        request.json({"type": "user", "name": USER, "orgs": [], "auth": {"accessToken": {}}})
    else:
        request.error(401, "", "Invalid username or password.")


@route("POST", "/api/repos/create")
def create(request: Request) -> None:
    asked = json.loads(request.body)
    id = f"{asked.get('organization') or USER}/{asked['name']}"
    if not may_write(request, id):
        return
    key = (asked.get("type", "model"), id)
    url = f"{request.standin.endpoint}/{'datasets/' if key[0] == 'dataset' else ''}{id}"
    if key in request.standin.repositories:
        request.json({"error": "You already created this repo", "url": url}, 409)
        return
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    made = Repository(*key, private=private)
    made.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
    request.standin.repositories[key] = made
    request.json({"url": url, "name": id})


@route("POST", "/api/validate-yaml")
def validate_yaml(request: Request) -> None:
    errors = []
    try:
        header = front_matter(json.loads(request.body)["content"])
        if not isinstance(header.get("tags", []), list):
            errors.append({"message": '"tags" must be an array'})
    except yaml.YAMLError as error:
        errors.append({"message": str(error)})
    request.json({"errors": errors, "warnings": []}, 400 if errors else 200)


@route("POST", rf"{KIND}/{REPO}/preupload/(?P<revision>[^/]+)")
def preupload(request: Request, kind: str, id: str, revision: str) -> None:
    found = find_own(request, kind, id, revision)
    if found is None:
        return
    there = found[0].commits[found[1]]
    answers = []
    for file in json.loads(request.body)["files"]:
        path = file["path"]
        large = path.endswith(LARGE)
        oid = None
        if path in there:
            oid = hashlib.sha256(there[path]).hexdigest() if large else git_id(there[path])
        mode = "lfs" if large else "regular"
        answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    request.json({"files": answers})


@route("POST", rf"/(?P<kind>datasets/)?{REPO}\.git/info/lfs/objects/batch")
def lfs_batch(request: Request, kind: str, id: str) -> None:
    if not may_write(request, id):
        return
    endpoint, objects = request.standin.endpoint, []
    for asked in json.loads(request.body)["objects"]:
        answer = dict(asked)
        if asked["oid"] not in request.standin.blobs:
            answer["actions"] = {
                "upload": {"href": f"{endpoint}/lfs/{asked['oid']}", "header": {}},
                "verify": {"href": f"{endpoint}/lfs-verify", "header": {}},
            }
        objects.append(answer)
    request.json({"transfer": "basic", "objects": objects})


@route("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})")
def lfs_upload(request: Request, oid: str) -> None:
    if hashlib.sha256(request.body).hexdigest() != oid:
        request.error(400, "", "The content does not have this sha256")
        return
    request.standin.blobs[oid] = request.body
    request.json({})


@route("POST", "/lfs-verify")
def lfs_verify(request: Request) -> None:
    asked = json.loads(request.body)
    content = request.standin.blobs.get(asked["oid"])
    whole = content is not None and len(content) == asked["size"]
    request.json({} if whole else {"error": "not there"}, 200 if whole else 404)


@route("POST", rf"{KIND}/{REPO}/commit/(?P<revision>[^/]+)")
def commit(request: Request, kind: str, id: str, revision: str) -> None:
    found = find_own(request, kind, id, revision)
    if found is None:
        return
    repository, parent = found
    files = dict(repository.commits[parent])
    for line in request.body.splitlines():
        item = json.loads(line)
        value = item["value"]
        if value.get("parentCommit", parent) != parent:
            request.error(412, "", "A commit has happened since. Please refresh and try again.")
            return
        if item["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif item["key"] == "lfsFile":
            files[value["path"]] = request.standin.blobs[value["oid"]]
        elif item["key"] == "deletedFile":
            del files[value["path"]]
    number = sum(ref.startswith("refs/pr/") for ref in repository.refs) + 1
    ref = f"refs/pr/{number}" if "create_pr" in request.query else revision
    sha = repository.commit(files, ref, parent)
    url = f"{request.standin.endpoint}/{'datasets/' if kind == 'datasets' else ''}{id}"
    answer = {"success": True, "commitOid": sha, "commitUrl": f"{url}/commit/{sha}"}
    request.json({**answer, "pullRequestUrl": f"{url}/discussions/{number}"})


@route("POST", rf"{KIND}/{REPO}/branch/(?P<name>[^/]+)")
def branch(request: Request, kind: str, id: str, name: str) -> None:
    found = find_own(request, kind, id, "main")
    if found is None:
        return
    if name in found[0].refs:
        request.json({"error": "Reference already exists"}, 409)
        return
    found[0].refs[name] = found[1]
    request.json({})


@route("POST", rf"{KIND}/{REPO}/super-squash/(?P<name>[^/]+)")
def super_squash(request: Request, kind: str, id: str, name: str) -> None:
    found = find_own(request, kind, id, name)
    if found is None:
        return
    repository, newest = found
    files = repository.commits[newest]
    del repository.refs[name]
    kept = {*repository.refs.values(), *repository.tags.values()}
    repository.commits = {sha: repository.commits[sha] for sha in kept}
    repository.commit(files, name, parent=f"squashed {newest}")
    request.json({})


@route("POST", rf"{KIND}/{REPO}/tag/(?P<revision>[^/]+)")
def tag(request: Request, kind: str, id: str, revision: str) -> None:
    found = find_own(request, kind, id, revision)
    if found is None:
        return
    name = json.loads(request.body)["tag"]
    if name in found[0].tags:
        request.json({"error": "Tag already exists"}, 409)
        return
    found[0].tags[name] = found[1]
    request.json({})


@route("GET", rf"{KIND}/{REPO}/refs")
def refs(request: Request, kind: str, id: str) -> None:
    found = request.find(kind, id, "main")
    if found is None:
        return
    repository = found[0]
    request.json(
        {
            "branches": listed(repository.refs, "refs/heads/"),
            "tags": listed(repository.tags, "refs/tags/"),
            "converts": [],
            "pullRequests": [],
        }
    )


def listed(names: dict[str, str], prefix: str) -> list[dict[str, str]]:
    return [
        {"name": name, "ref": prefix + name, "targetCommit": sha}
        for name, sha in sorted(names.items())
        if not name.startswith("refs/")
    ]


@route("GET", "/api/(?P<kind>datasets|models)")
def listing(request: Request, kind: str) -> None:
    """Filters by the tags of each card, as the Hub does."""
    wanted = set(request.queries.get("filter", []))
    rows = []
    for (of, id), repository in sorted(request.standin.repositories.items()):
        sha = repository.refs.get("main", "")
        card = repository.header(sha)
        tags = card.get("tags") or []
        seen = not repository.private or request.token == TOKEN
        if of == KINDS[kind] and seen and wanted <= set(map(str, tags)):
            rows.append({"id": id, "sha": sha, "cardData": card, "tags": tags, "downloads": 7})
    request.json(rows)
