"""Formulas as MathML: browsers draw it themselves, so that no script and no network is needed."""

from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

FONT = "STIXTwoMath-Regular.ttf"


def _inline(self, node: nodes.Element) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(self, node: nodes.Element) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(convert(node.astext(), display="block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _bundle_font(app, exception) -> None:
    """The font with the tables of mathematics comes with a package of the extra [docs]."""
    if exception is None and app.builder.format == "html":
        import ziamath

        source = Path(ziamath.__file__).parent / "fonts" / FONT
        (Path(app.outdir) / "_static" / FONT).write_bytes(source.read_bytes())


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    app.connect("build-finished", _bundle_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
