// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

type doc struct {
	Name  string            `json:"name"`
	Size  int64             `json:"size"`
	Inner *doc              `json:"inner"`
	List  []doc             `json:"list"`
	Map   map[string]string `json:"map"`
	Raw   json.RawMessage   `json:"raw"`
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"name":"a","inner":{"size":3},"list":[{"name":"b"}],"map":{"Name":"x","name":"y"},"raw":{"z":[1,{"q":2}]},"other":{"k":1}}`, ""},
		{`{"name":"a","name":"b"}`, "twice"},
		{`{"name":"a","n\u0061me":"b"}`, "twice"},
		{`{"Name":"a"}`, `is not "name"`},
		{`{"ſize":1}`, `is not "size"`}, // long s folds to s
		{`{"list":[{"NAME":"a"}]}`, `is not "name"`},
		{`{"inner":{"Size":1}}`, `is not "size"`},
		{`{"map":{"a":"1","a":"2"}}`, "twice"},
		{`{"raw":{"a":1,"a":2}}`, "twice"},
		{`{"other":{"a":1,"a":2}}`, "twice"},
		{`{"name":"a"} `, ""},
		{`{"name":"a"}{}`, "after top-level"},
		{`{"name":"a"}x`, "after top-level"},
		{`{"name":"` + "\xff" + `"}`, "UTF-8"},
		{`{"name":"a"`, "unexpected end"},
		{``, "unexpected end"},
		{`{"size":9223372036854775808}`, "cannot unmarshal"},
		{`{"size":1e3}`, "cannot unmarshal"},
		{strings.Repeat(`{"inner":`, 20) + `{}` + strings.Repeat(`}`, 20), "deep"},
		{`{"raw":` + strings.Repeat(`[`, 20) + strings.Repeat(`]`, 20) + `}`, "deep"},
	} {
		var d doc
		err := Decode([]byte(c.in), &d)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Decode(%.60s) = %v, want %q", c.in, err, c.want)
		}
	}
}

func TestDecodeKnown(t *testing.T) {
	var d doc
	if err := DecodeKnown([]byte(`{"name":"a","extra":1}`), &d); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("DecodeKnown let an unknown key pass: %v", err)
	}
}

func TestCaps(t *testing.T) {
	for _, c := range []struct {
		in   string
		caps Caps
		good bool
	}{
		{`{"list":[{},{},{}]}`, Caps{99, 3}, true},
		{`{"list":[{},{},{},{}]}`, Caps{99, 3}, false},
		{`{"other":[0,0,0,0]}`, Caps{99, 3}, false},
		{`{"a":0,"b":0,"c":0,"d":0}`, Caps{99, 3}, false},
		{`{"a":[0,0,0],"b":[0,0,0],"c":[0,0,0]}`, Caps{99, 3}, true},
		{`{"name":"a"}`, Caps{3, 9}, true}, // the object, its key, its value
		{`{"name":"a","size":1}`, Caps{4, 9}, false},
		{`{"name":"[,,,,,,\\\",,,,"}`, Caps{3, 1}, true}, // text
		{`{"raw":[[0],[0]]}`, Caps{5, 9}, false},
		{strings.Repeat("[", 1000), Caps{99, 9}, true}, // too deep: refused by Decode
		{`]]]]`, Caps{9, 9}, true},
	} {
		if err := c.caps.Check([]byte(c.in)); errors.Is(err, ErrLarge) == c.good || (err == nil) != c.good {
			t.Errorf("%+v.Check(%s) = %v, want good: %v", c.caps, c.in, err, c.good)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","list":[{"size":1}]}`))
	f.Add([]byte(" { \"n\\u0061me\" : \"\\\"}\\\\\" ,\n\"list\":[ ] , \"map\":{\"a\":\"\"},\"raw\":[-1e3,true , null],\"inner\":{} }\t"))
	f.Add([]byte(`{"Name":1,"raw":{"a":{"a":[[[{}]]]},"a":0}}`))
	f.Add([]byte(`{"\ud800":1,"\ud801":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Caps{9, 9}.Check(data) // any answer will do; it must return
		for _, known := range []bool{false, true} {
			var d, slow doc
			err, want := decode(data, &d, known), byTokens(data, &slow, known)
			if (err == nil) != (want == nil) || err == nil && !reflect.DeepEqual(d, slow) {
				t.Fatalf("%q: %v, %v; by tokens %v, %v", data, d, err, slow, want)
			}
			if want != nil && json.Valid(data) && err.Error() != want.Error() {
				t.Fatalf("%q: %v; by tokens %v", data, err, want)
			}
		}
	})
}
