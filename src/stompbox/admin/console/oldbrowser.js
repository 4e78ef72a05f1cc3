// Says so where a browser is older than the console needs, or where a file of it did not come. Written for old browsers: no module, nothing new.
(function () {
  "use strict";
  var NEEDED = "This browser is older than the console needs: Chrome or Edge 93, Firefox 98, Safari 15.4, or later. What it shows is also under /api/v1, and stompbox status has it on the command line.";

  function say(text) {
    var shown = document.getElementById("notice");
    if (!shown) return;
    shown.removeAttribute("hidden");
    shown.textContent = text;
    document.getElementById("state").textContent = "";
  }

  function isOld() {
    return !("noModule" in document.createElement("script")) || !window.HTMLDialogElement || !Object.hasOwn || !Array.prototype.at || !window.AbortController;
  }

  function begin() {
    if (!isOld()) return;
    document.body.className += " is-old"; // console.js does not begin then
    say(NEEDED);
  }

  var isMissing = false; // a file, which says nothing of the browser, whatever fails for want of it

  window.addEventListener("error", function (event) {
    if (event.target && event.target.tagName && !isOld()) {
      isMissing = true;
      say("A part of the console did not come. Load the page again.");
    } else if (isOld() || (!isMissing && document.body.className.indexOf("is-begun") < 0)) say(NEEDED);
  }, true);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
