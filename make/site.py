"""A hook of MkDocs: links from docs/ to files outside of docs/ point to the repository."""
import posixpath
import re


def on_page_markdown(markdown, page, config, **_):
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def target(link):
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        return link[0] if path.startswith("docs/") else f"]({config.repo_url}/blob/main/{path}"

    return re.sub(r"\]\((\.\./[^)#\s]+)", target, markdown)
