import json
for name in names:
    try:
        compile(open("/skills/" + name, "rb").read(), "/skills/" + name, "exec", dont_inherit=True)
    except Exception as e:
        print(json.dumps({"name": name, "reason": f"{type(e).__name__}: {e}"}))
