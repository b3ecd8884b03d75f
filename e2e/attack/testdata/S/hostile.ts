// Hostile MCP servers: what their programs try in their slots, and what they answer. The servers hostile and neighbour are
// both the intruder.

// expected: refused by the kernel or the proxy
// judge: verdicts()
// apis: hostile neighbour
// seconds: 60

const ask = async (server: string, tool: string, args: Record<string, unknown>) =>
  out(await mcp[server][tool]({ trial: "TRIAL", ...args }) as Record<string, unknown>);

// name: {who} of a server: {what}
// each: who = attempt child
// each: what
//   who am I
//   no new privileges, seccomp
//   setuid
//   namespaces
//   mounts
//   kernel interfaces
//   sockets of other kinds
//   addresses and routes
//   TCP to other ports
//   IPv6
//   UDP
//   DNS outside the catalog
//   TLS to a host in no API
//   sockets of daemons
//   other processes
//   files of the kernel and the host
//   writable places
//   limits
//   terminal
//   packages of others
//   programs can be written
await ask("hostile", "{who}", { name: "{what}" });

// name: a server opens {path}
// expected: neither listed nor written
// each: path = /tmp /skills /runs /code /run /var /etc/ssl /packages/install /sys /dev/shm /root
await ask("hostile", "attempt", { name: "a place of others", path: "{path}" });

// name: a server looks for credentials in files and environments
// expected: none
await ask("hostile", "attempt", { name: "files with secrets", backwards: ["REVERSED_HTTPBIN_TOKEN"] });

// name: a server opens the homes of other servers
// expected: closed
// chain: homes of servers
await ask("neighbour", "attempt", { name: "keep a secret" });
await ask("hostile", "attempt", { name: "homes of others" });
await ask("hostile", "child", { name: "homes of others" });

// name: two servers meet on a port
// expected: they cannot
// chain: ports of servers
await Promise.all([
  ask("neighbour", "attempt", { name: "listen" }),
  ask("hostile", "attempt", { name: "reach a neighbour" }),
]);

// name: control: a server reads what is its own
// expected: it can
await ask("hostile", "attempt", { name: "keep a secret" });

// name: a server answers a credential: {form}
// expected: a name, or nothing
// each: form
//   text
//   several texts
//   an error of the tool
//   structured content
//   a name of structured content
//   base64
//   base64 of a header
//   hex
//   a query
//   JSON in text
//   JSON in JSON in text
//   escapes
//   an image
//   a resource
//   a link
//   metadata
{
  const raw = (mcp.hostile.say as unknown as { raw: (args: unknown) => Promise<unknown> }).raw;
  const text = JSON.stringify(await raw({ name: "{form}", backwards: ["REVERSED_HTTPBIN_TOKEN"] }));
  const backwards = [..."REVERSED_HTTPBIN_TOKEN"].reverse().join("");
  out({ held: !text.includes(backwards) && text.length > 20, seen: text.slice(0, 200) });
}

// name: a server answers a credential in an error of the protocol
// expected: a name
{
  const told = await mcp.hostile.fail({ backwards: ["REVERSED_HTTPBIN_TOKEN"] }).catch((e) => String(e));
  out({ held: String(told).includes("HTTPBIN_TOKEN"), seen: String(told) });
}

// name: fork bomb of a server
// expected: bounded; others go on
// alone: yes
// forks: yes
await mcp.hostile.attempt({ name: "fork bomb" }).catch(() => undefined);
await ask("neighbour", "attempt", { name: "who am I" });
