// Browsers do not start workers from pages on disk. There, the theme's search worker runs in a
// hidden frame instead. The name of this file tells mkdocs-material to load no other such script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.scope = new Promise((resolve) => {
        frame.onload = () => {
          const scope = frame.contentWindow;
          const script = scope.document.createElement("script");
          script.src = new URL(url, location.href);
          script.onload = () => resolve(scope);
          scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          scope.document.body.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.scope.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
