"""XPath 1.0 on message bodies, for XPATH in selectors.

Complete but for what a message body has no use for: no variables, no namespace axis, no prefixes but `xml` (nothing would bind them;
`*[local-name() = 'a' and namespace-uri() = 'u']` says the same). Expression and body both come from strangers, so all that is faulty in
an expression is found when it is compiled (types are static in XPath 1.0 without variables), documents are read without DTD, and every
evaluation has a budget of steps.
"""

from __future__ import annotations

from stompbox.selectors.xpath.document import Document
from stompbox.selectors.xpath.evaluation import STEPS, XPath
from stompbox.selectors.xpath.grammar import DEPTH, compile_xpath
from stompbox.selectors.xpath.tokens import TOKENS, XPathFault

__all__ = ["DEPTH", "STEPS", "TOKENS", "Document", "XPath", "XPathFault", "compile_xpath"]
