package attack

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
)

// judges are what the field judge of a file may name: judges, functions that make one, and their arguments.
func judges() map[string]any {
	return map[string]any{
		"true": true, "false": false,
		"byeProtocol": byeProtocol, "byePolicy": byePolicy, "byeTooBig": byeTooBig,

		"arrived": arrived, "both": both, "counted": counted, "ended": ended, "ends": ends, "heard": heard, "hungUp": hungUp,
		"intact": intact, "lastOfItsWire": lastOfItsWire, "literally": literally, "never": never, "neverWhole": neverWhole,
		"notEchoed": notEchoed, "nothingWhole": nothingWhole, "once": once, "rangeless": rangeless, "refused": refused,
		"scrubbed": scrubbed, "signatureHidden": Judge(signatureHidden), "signed": signed, "macked": Judge(macked), "swapped": swapped, "swappedAt": swappedAt, "undialled": undialled, "unheard": unheard, "unsent": unsent, "unsigned": Judge(unsigned),
		"unknownBoundary": unknownBoundary, "unswapped": unswapped, "verdicts": verdicts, "weighed": weighed, "within": within,

		"asGet": Judge(asGet), "overweight": Judge(overweight), "basic": Judge(basic), "broken": Judge(broken), "closed": Judge(closed),
		"documented": Judge(documented), "logged": Judge(logged), "oneHost": Judge(oneHost),
		"overrideUnsent": Judge(overrideUnsent), "reached": Judge(reached), "stuck": Judge(stuck),
		"survives": Judge(survives), "twoReadings": Judge(twoReadings), "unasked": Judge(unasked),
		"unread": Judge(unread), "unredacted": Judge(unredacted),
		"unseparated": Judge(unseparated), "unshown": Judge(unshown), "unsmuggled": Judge(unsmuggled),
		"unswallowed": Judge(unswallowed),
	}
}

// judgeOf evaluates the field judge, which is written as it is in Go: both(refused(), never("second")).
func judgeOf(text string) (Judge, error) {
	tree, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("judge %q: %w", text, err)
	}
	v, err := evaluate(tree)
	if err != nil {
		return nil, fmt.Errorf("judge %q: %w", text, err)
	}
	j, ok := v.Interface().(Judge)
	if !ok {
		return nil, fmt.Errorf("judge %q is a %s", text, v.Type())
	}
	return j, nil
}

func evaluate(tree ast.Expr) (reflect.Value, error) {
	switch x := tree.(type) {
	case *ast.Ident:
		if v, ok := judges()[x.Name]; ok {
			return reflect.ValueOf(v), nil
		}
		return reflect.Value{}, fmt.Errorf("%s is unknown", x.Name)
	case *ast.BasicLit:
		if x.Kind == token.INT {
			n, err := strconv.Atoi(x.Value)
			return reflect.ValueOf(n), err
		}
		s, err := strconv.Unquote(x.Value)
		return reflect.ValueOf(s), err
	case *ast.CallExpr:
		return apply(x)
	}
	return reflect.Value{}, fmt.Errorf("a %T has no value here", tree)
}

// apply calls a function that makes a judge.
func apply(x *ast.CallExpr) (reflect.Value, error) {
	f, err := evaluate(x.Fun)
	if err != nil {
		return f, err
	}
	t := f.Type()
	if t.Kind() != reflect.Func || t == reflect.TypeFor[Judge]() || len(x.Args) < t.NumIn() && !t.IsVariadic() {
		return f, fmt.Errorf("%s is not called so", t)
	}
	var args []reflect.Value
	for i, a := range x.Args {
		v, err := evaluate(a)
		if err != nil {
			return v, err
		}
		if i >= t.NumIn() && !t.IsVariadic() || !v.Type().AssignableTo(parameter(t, i)) {
			return v, fmt.Errorf("%s is not called with a %s", t, v.Type())
		}
		args = append(args, v)
	}
	if len(args) < t.NumIn()-1 {
		return f, fmt.Errorf("%s needs more arguments", t)
	}
	return f.Call(args)[0], nil
}

// parameter is the type of a function's argument i.
func parameter(t reflect.Type, i int) reflect.Type {
	if t.IsVariadic() && i >= t.NumIn()-1 {
		return t.In(t.NumIn() - 1).Elem()
	}
	return t.In(i)
}
