"""XPath 1.0 on message bodies, for XPATH in selectors.

Complete but for what a message body has no use for: no variables, no namespace axis, no prefixes but `xml` (nothing would bind them;
`*[local-name() = 'a' and namespace-uri() = 'u']` says the same). Expression and body both come from strangers, so all that is faulty in
an expression is found when it is compiled (types are static in XPath 1.0 without variables), documents are read without DTD, and all
XPATHs of a selector draw on one budget of steps for a message (../budget.py).
"""

from __future__ import annotations

from stompbox.selectors.xpath.document import Document
from stompbox.selectors.xpath.evaluation import XPath
from stompbox.selectors.xpath.grammar import DEPTH, compile_xpath, compiling_xpath
from stompbox.selectors.xpath.tokens import TOKENS, XPathFault

__all__ = ["DEPTH", "TOKENS", "Document", "XPath", "XPathFault", "compile_xpath", "compiling_xpath"]
