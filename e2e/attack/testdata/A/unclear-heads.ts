// Heads that servers read in different ways, where names stand in declared places.

// expected: refused, nothing sent
// judge: refused("ambiguous_request", "bad_request")

// name: {what}
// each: what | headers
//   two Content-Types                         | Content-Type: application/json\r\nContent-Type: text/plain\r\n
//   a Content-Type with an underscore besides | Content-Type: application/json\r\nContent_Type: text/plain\r\n
//   a Content-Type of two types               | Content-Type: application/json, text/plain\r\n
await raw(
  "httpbin.test",
  "httpbin.test",
  'POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n{headers}Content-Length: 32\r\nConnection: close\r\n\r\n{"client_secret":"HTTPBIN_BODY"}',
);

// name: {what}
// each: what | path | headers
//   Authorization: a quote within a word    | /anything                           | Authorization: X comment=a\", token=HTTPBIN_TOKEN, b=\"\r\n
//   Authorization: single quotes            | /anything                           | Authorization: X comment='a, token=HTTPBIN_TOKEN, b='\r\n
//   Authorization: a parameter twice        | /anything                           | Authorization: X token=HTTPBIN_TOKEN, Token=x\r\n
//   Authorization: a star parameter         | /anything                           | Authorization: X token*=HTTPBIN_TOKEN\r\n
//   Authorization twice                     | /anything                           | Authorization: Bearer HTTPBIN_TOKEN\r\nAuthorization: X comment=\r\n
//   a header twice, with an underscore      | /anything                           | X-Api-Key: HTTPBIN_NAMED\r\nX_Api_Key: x\r\n
//   cookies: quotes around the declared one | /anything                           | Cookie: note=\"a; session=HTTPBIN_NAMED; b=\"\r\n
//   cookies: the declared one twice         | /anything                           | Cookie: session=HTTPBIN_NAMED; SESSION=x\r\n
//   cookies: a version                      | /anything                           | Cookie: $Version=1; session=HTTPBIN_NAMED\r\n
//   cookies: two headers                    | /anything                           | Cookie: session=HTTPBIN_NAMED\r\nCookie: a=b\r\n
//   query: a charset that some decode it in | /anything/HTTPBIN_PATH              | Content-Type: text/plain; charset=cp037\r\n
//   path: dot segments                      | /anything/HTTPBIN_PATH/../x         |
//   path: dot segments, escaped twice       | /anything/HTTPBIN_PATH/%252e%252e/x |
//   path: dot segments behind a parameter   | /anything/HTTPBIN_PATH/..;a=b/x     |
//   path: a backslash                       | /anything/x%5c..%5c/HTTPBIN_PATH    |
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET {path}?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n{headers}Connection: close\r\n\r\n",
);
