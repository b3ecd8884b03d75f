// Reports how Node's parsers read each request. NODE_PATH names the folder of the packages. Prints its port.
'use strict';
const http = require('node:http');
const querystring = require('node:querystring');
const { Readable, Writable } = require('node:stream');
const busboy = require('busboy');
const formidable = require('formidable');
const multer = require('multer');
const bodyParser = require('body-parser');
const qs = require('qs');
const JSON5 = require('json5');

// flatten returns [place, name, value] for each leaf: keys joined by dots, arrays not counted. It is not recursive,
// because bodies may be nested too deep for that.
function flatten(place, value) {
  const out = [];
  const todo = [[value, '']];
  while (todo.length > 0) {
    const [v, name] = todo.pop();
    if (Array.isArray(v)) {
      for (const e of v) todo.push([e, name]);
    } else if (v !== null && typeof v === 'object') {
      for (const k of Object.keys(v)) todo.push([v[k], name === '' ? k : name + '.' + k]);
    } else {
      out.push([place, name, String(v)]);
    }
  }
  return out;
}

function pairs(place, entries) {
  return Array.from(entries, ([k, v]) => [place, String(k), String(v)]);
}

function head(req) {
  const fields = [];
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    fields.push(['header', req.rawHeaders[i].toLowerCase(), req.rawHeaders[i + 1]]);
  }
  const cut = req.url.indexOf('?');
  const path = cut < 0 ? req.url : req.url.slice(0, cut);
  try {
    fields.push(['path', '', decodeURIComponent(path)]);
  } catch {
    fields.push(['path', '', path]);
  }
  const url = new URL('http://h' + (req.url.startsWith('/') ? req.url : '/'));
  fields.push(['path', '', url.pathname]);
  const basic = /^basic +(.*)$/i.exec(req.headers.authorization || '');
  if (basic) {
    const text = Buffer.from(basic[1], 'base64').toString();
    const colon = text.indexOf(':');
    fields.push(['auth', 'user', colon < 0 ? text : text.slice(0, colon)]);
    if (colon >= 0) fields.push(['auth', 'password', text.slice(colon + 1)]);
  }
  return fields;
}

// again is the request as a stream, for readers that take one.
function again(req, body) {
  const r = Readable.from(body.length ? [body] : [], { objectMode: false });
  return Object.assign(r, {
    headers: req.headers, rawHeaders: req.rawHeaders, method: req.method, url: req.url, httpVersion: '1.1',
    socket: req.socket, connection: req.socket, complete: true, aborted: false,
  });
}

function withBusboy(req, body) {
  return new Promise((done) => {
    const fields = [];
    let bb;
    try {
      bb = busboy({ headers: req.headers });
    } catch (e) {
      return done({ fields, error: String(e.message || e) });
    }
    let error = '';
    bb.on('field', (name, value, info) => {
      fields.push(['body', String(name), value]);
    });
    bb.on('file', (name, stream, info) => {
      const chunks = [];
      fields.push(['filename', String(name), String(info.filename)]);
      stream.on('data', (c) => chunks.push(c));
      stream.on('end', () => fields.push(['file', String(name), Buffer.concat(chunks).toString()]));
      stream.on('error', (e) => { error = String(e.message); });
    });
    bb.on('error', (e) => { error = error || String(e.message); setImmediate(() => done({ fields, error })); });
    bb.on('close', () => done({ fields, error }));
    again(req, body).pipe(bb);
  });
}

async function withFormidable(req, body) {
  const files = [];
  const form = formidable.formidable({
    allowEmptyFiles: true, minFileSize: 0,
    fileWriteStreamHandler: (file) => {
      const chunks = [];
      files.push({ file, chunks, name: '' });
      return new Writable({ write(c, _e, cb) { chunks.push(c); cb(); } });
    },
  });
  const fields = [];
  form.on('field', (name, value) => fields.push(...flatten('body', { [String(name)]: value })));
  form.on('file', (name, file) => {
    fields.push(['filename', String(name), String(file.originalFilename)]);
    for (const f of files) if (f.file === file) f.name = String(name);
  });
  let error = '';
  try {
    await form.parse(again(req, body));
  } catch (e) {
    error = String(e.message || e);
  }
  for (const f of files) fields.push(['file', f.name, Buffer.concat(f.chunks).toString()]);
  return { fields, error };
}

// middleware runs an Express middleware.
function middleware(use, req, body) {
  return new Promise((done) => {
    const r = again(req, body);
    const finish = (e) => {
      const fields = flatten('body', r.body === undefined ? {} : r.body);
      for (const f of r.files || []) {
        fields.push(['filename', f.fieldname, String(f.originalname)], ['file', f.fieldname, f.buffer.toString()]);
      }
      done({ fields, error: e ? String(e.message || e) : '', read: r._body || r.body !== undefined });
    };
    try {
      use(r, {}, finish);
    } catch (e) {
      finish(e);
    }
  });
}

const json = bodyParser.json({ strict: false, inflate: true });
const extended = bodyParser.urlencoded({ extended: true });
const simple = bodyParser.urlencoded({ extended: false });
const upload = multer().any();

function attempt(read) {
  try {
    return { fields: read(), error: '' };
  } catch (e) {
    return { fields: [], error: String(e.message || e) };
  }
}

async function read(req, body) {
  const out = [];
  const say = (reader, kind, r) => out.push({ reader, kind, method: req.method, fields: r.fields, error: r.error });
  const type = (req.headers['content-type'] || '').toLowerCase();
  const cut = req.url.indexOf('?');
  const query = cut < 0 ? '' : req.url.slice(cut + 1);
  say('node', 'head', { fields: head(req), error: '' });
  say('node-url', 'query', attempt(() => pairs('query', new URL('http://h/?' + query).searchParams)));
  say('node-querystring', 'query', attempt(() => flatten('query', { ...querystring.parse(query) })));
  say('qs', 'query', attempt(() => flatten('query', qs.parse(query))));
  say('qs-dots', 'query', attempt(() => flatten('query', qs.parse(query, { allowDots: true, comma: true, charsetSentinel: true, interpretNumericEntities: true }))));
  if (body.length === 0) return out;
  const text = body.toString();
  if (type.startsWith('multipart/')) {
    say('busboy', 'multipart', await withBusboy(req, body));
    say('formidable', 'multipart', await withFormidable(req, body));
    say('multer', 'multipart', await middleware(upload, req, body));
  } else if (type.includes('urlencoded')) {
    say('busboy', 'form', await withBusboy(req, body));
    say('formidable', 'form', await withFormidable(req, body));
    say('body-parser-extended', 'form', await middleware(extended, req, body));
    say('body-parser', 'form', await middleware(simple, req, body));
    say('node-url', 'form', attempt(() => pairs('body', new URLSearchParams(text))));
    say('qs-dots', 'form', attempt(() => flatten('body', qs.parse(text, { allowDots: true, comma: true, charsetSentinel: true, interpretNumericEntities: true }))));
  } else {
    const r = await middleware(json, req, body);
    if (r.read || r.error) say('body-parser', 'json', r);
    if (type.includes('json') && !type.startsWith('application/json')) say('formidable', 'json', await withFormidable(req, body));
  }
  const kind = type.includes('json') ? 'json' : 'untyped';
  say('node-json', kind, attempt(() => flatten('body', JSON.parse(text))));
  say('json5', kind, attempt(() => flatten('body', JSON5.parse(text))));
  if (kind === 'json' && text.includes('\n')) {
    say('node-ndjson', 'json', attempt(() => text.split(/\r?\n/).filter((l) => l.trim()).flatMap((l) => flatten('body', JSON.parse(l)))));
  }
  return out;
}

const server = http.createServer({ maxHeaderSize: 1 << 18 }, (req, res) => {
  const chunks = [];
  req.on('data', (c) => chunks.push(c));
  req.on('end', async () => {
    const readings = await read(req, Buffer.concat(chunks));
    const answer = Buffer.from(JSON.stringify({ readings }));
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': answer.length, Connection: 'close' });
    res.end(answer);
  });
});
process.on('uncaughtException', (e) => { process.stderr.write(String(e.stack) + '\n'); });
server.listen(0, '127.0.0.1', () => process.stdout.write(server.address().port + '\n'));
