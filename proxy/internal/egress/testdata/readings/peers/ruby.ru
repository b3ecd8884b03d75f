# Reports how Rack and Ruby's JSON read a request. Served by Puma.
require 'rack'
require 'rack/method_override'
require 'rack/auth/basic'
require 'json'

def text(v)
  v.to_s.dup.force_encoding('UTF-8').scrub('?')
end

def leaves(place, value, name = '', out = [])
  case value
  when Hash
    if value.key?(:tempfile) || value.key?(:filename)
      out << ['filename', text(name), text(value[:filename])]
      out << ['filename', text(name), text(value[:name])] if value[:name]
      out << ['file', text(name), text(value[:tempfile].read)] if value[:tempfile]
    else
      value.each { |k, v| leaves(place, v, name == '' ? text(k) : "#{name}.#{text(k)}", out) }
    end
  when Array then value.each { |v| leaves(place, v, name, out) }
  else out << [place, text(name), text(value)]
  end
  out
end

def attempt
  [yield, '']
rescue StandardError, SystemStackError => e
  [[], "#{e.class}: #{text(e.message)}"[0, 200]]
end

PLAIN = ->(_env) { [200, {}, []] }

APP = lambda do |env|
  out = []
  body = env['rack.input'].read || ''
  env['rack.input'].rewind
  request = -> { Rack::Request.new(env.merge('rack.input' => StringIO.new(body.dup.force_encoding('BINARY')), 'rack.request.form_input' => nil)) }
  method = env['REQUEST_METHOD']
  say = ->(reader, kind, got, m = method) { out << { reader: reader, kind: kind, method: m, fields: got[0], error: got[1] } }

  head = env.select { |k, _| k.start_with?('HTTP_') }.map { |k, v| ['header', k[5..].downcase.tr('_', '-'), text(v)] }
  head << ['path', '', text(Rack::Utils.unescape_path(env['PATH_INFO']))] << ['path', '', text(env['PATH_INFO'])]
  basic = Rack::Auth::Basic::Request.new(env)
  if basic.provided? && basic.basic?
    user, password = attempt { basic.credentials }[0]
    head << ['auth', 'user', text(user)] << ['auth', 'password', text(password)]
  end
  head.concat(attempt { leaves('header', request.call.cookies, 'cookie') }[0])
  overridden = env.merge('rack.input' => StringIO.new(body.dup.force_encoding('BINARY')), 'rack.errors' => StringIO.new)
  seen = attempt { Rack::MethodOverride.new(PLAIN).call(overridden); [] }
  say.call('rack', 'head', [head, ''], overridden['REQUEST_METHOD'])
  out.last[:error] = '' if seen[1] != ''

  say.call('rack', 'query', attempt { leaves('query', request.call.GET) })
  r = request.call
  if !body.empty? && (r.form_data? || r.parseable_data?)
    say.call('rack', r.media_type.to_s.start_with?('multipart') ? 'multipart' : 'form', attempt { leaves('body', request.call.POST) })
  end
  unless body.empty?
    kind = env['CONTENT_TYPE'].to_s.downcase.include?('json') ? 'json' : 'untyped'
    say.call('ruby-json', kind, attempt { leaves('body', JSON.parse(body)) })
    say.call('ruby-json-nan', kind, attempt { leaves('body', JSON.parse(body, allow_nan: true, max_nesting: false)) })
  end
  answer = JSON.generate({ readings: out })
  [200, { 'Content-Type' => 'application/json', 'Content-Length' => answer.bytesize.to_s, 'Connection' => 'close' }, [answer]]
end

run APP
