// The sign-in page, for the person who can run commands on the machine.
import { html, useState } from "./preact.js";
import { Command } from "./parts.js";
import { escapeNodes } from "./text.js";
import { signIn } from "./session.js";
import { Icon, Mark } from "./draw.js";

export function SignIn({ why, entered }) {
  const [text, setText] = useState(""), [wrong, setWrong] = useState(why);
  const submit = async (e) => {
    e.preventDefault();
    try { await signIn(text.trim().replace(/^.*#code=/, "")); setText(""); entered(); } catch (x) { setWrong(x.message); }
  };
  return html`<main id="main" class="center"><div class="card signin">
    <div class="row"><${Mark} /><b class="big">CodeForge</b></div><h1>Sign in</h1>
    <p class="soft">Only the person who started CodeForge can see its runs. On that machine:</p>
    <${Command} text="codeforge console" /><${Command} text="docker compose exec mcp-server codeforge console" />
    <p class="faint">It prints a link to this page that works once, for one minute.</p>
    <form class="row" onSubmit=${submit}><label class="field grow"><${Icon} name="key" /><span class="sr">Code or token</span><input type="password" name="secret" autocomplete="off" placeholder="or the code it printed, or MCP_AUTH_TOKEN" value=${text} onInput=${(e) => setText(e.currentTarget.value)} /></label><button class="btn main" disabled=${!text.trim()}>Open</button></form>
    ${wrong && html`<p class="bad" role="alert">${escapeNodes(wrong)}</p>`}
  </div></main>`;
}
