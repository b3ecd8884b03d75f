// Names that lead to where no proxy may dial, and servers that are not who they claim to be.

// name: name that resolves to {address}
// expected: refused at dial
// judge: undialled("{host}")
// each: host | address
//   meta.test     | 169.254.169.254
//   link.test     | 169.254.10.10
//   loop.test     | 127.0.0.1
//   zero.test     | 0.0.0.0
//   multi.test    | 224.0.0.251
//   bcast.test    | 255.255.255.255
//   synth.test    | 198.18.0.1
//   cgnat.test    | 100.64.0.1
//   priv10.test   | 10.1.2.3
//   priv172.test  | 172.16.9.9
//   priv192.test  | 192.168.7.7
//   proxy.test    | 10.77.0.2
//   slot.test     | 10.77.0.101
//   loop6.test    | ::1
//   link6.test    | fe80::1
//   ula6.test     | fd00::1
//   mapped.test   | ::ffff:169.254.169.254
//   mapped2.test  | ::ffff:127.0.0.1
//   nat64.test    | 64:ff9b::a9fe:a9fe
//   6to4.test     | 2002:7f00:1::
//   metaipv6.test | fd00:ec2::254
await show(fetch("https://{host}/anything?t=TRIAL", auth("FORBIDDEN_TOKEN")));

// name: upstream with a {what}
// expected: 502, not a byte sent
// judge: unsent("{host}")
// each: what | host
//   certificate of an unknown authority | badca.test
//   certificate for another name        | wrongname.test
//   expired certificate                 | expired.test
await show(fetch("https://{host}/anything?t=TRIAL", auth("CERTS_TOKEN")));

// name: name that resolves elsewhere the second time
// expected: never to loopback
// judge: undialled("rebind.test")
// note: A login is sent on a connection of its own, so that the name is asked for each time.
for (let i = 0; i < 6; i++) {
  await show(fetch("https://rebind.test/anything?t=TRIAL", { headers: { Authorization: "Negotiate YII" } }));
}
