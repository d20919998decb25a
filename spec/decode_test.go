// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// full is an overlay with everything in it.
func full() (o Overlay) {
	golden.Fill(reflect.ValueOf(&o).Elem())
	o.Fleet, o.Node, o.KernelArgs, o.CAs = "f", "n", []string{"quiet", "a<b>&c"}, []string{"pem\n"}
	o.Network.Interfaces[0].MTU = 9000
	*o.Items.Swaps[0].Priority, o.Items.Sysctl[0].Value, o.Items.Perm.Interval = 0, "", -1
	o.Maintenance.Windows = map[string]Window{"w": o.Maintenance.Windows["a"]}
	o.Items.Exec[0].Data, o.Items.Exec[0].Env = "#!/bin/sh\n\u2028", map[string]string{"B": "1", "A": "2"}
	return o
}

func TestDecodeTakesWhatEncodeGives(t *testing.T) {
	for name, doc := range map[string]Overlay{"full": full(), "empty": {}} {
		data, err := Encode(doc)
		if err != nil {
			t.Fatal(err)
		}
		var again Overlay
		if err := Decode(data, &again); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What two readers could read differently is refused.
func TestDecodeRefuses(t *testing.T) {
	data, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, bad := range map[string]string{
		"space":         strings.Replace(good, `":`, `": `, 1),
		"trailing":      good + "\n",
		"two documents": good + good,
		"duplicate key": strings.Replace(good, `"node":"n"`, `"node":"other","node":"n"`, 1),
		"case":          strings.Replace(good, `"node":"n"`, `"Node":"n"`, 1),
		"unknown":       strings.Replace(good, `"node":"n"`, `"node":"n","extra":1`, 1),
		"order":         strings.Replace(good, `"fleet":"f","node":"n"`, `"node":"n","fleet":"f"`, 1),
		"escape":        strings.Replace(good, `"node":"n"`, `"node":"\u006e"`, 1),
		"escaped html":  strings.Replace(good, `a<b>&c`, `a\u003cb>&c`, 1),
		"null":          strings.Replace(good, `"node":"n"`, `"node":null`, 1),
		"written zero":  strings.Replace(good, `"mtu":9000`, `"mtu":0`, 1),
		"float":         strings.Replace(good, `"mtu":9000`, `"mtu":9e3`, 1),
		"map order":     strings.Replace(good, `{"A":"2","B":"1"}`, `{"B":"1","A":"2"}`, 1),
		"empty list":    strings.Replace(good, `"cas":["pem\n"]`, `"cas":[]`, 1),
		"bad UTF-8":     strings.Replace(good, `"node":"n"`, "\"node\":\"\xff\"", 1),
		"cut":           good[:len(good)-1],
		"nothing":       "",
		"number":        "1",
	} {
		if bad == good {
			t.Fatalf("%s changes nothing", name)
		}
		var o Overlay
		if err := Decode([]byte(bad), &o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	var o Overlay
	if err := Decode([]byte(good+" "), &o); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("err = %v, want ErrNotCanonical", err)
	}
}

// FuzzDecode: what is taken encodes to the very bytes it was read from.
func FuzzDecode(f *testing.F) {
	for _, doc := range []any{full(), Overlay{}, Layer{}, Bootstrap{}, Status{}, Recipe{}} {
		data, err := Encode(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion":"","kind":"","node":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, doc := range []any{&Overlay{}, &Layer{}, &Bootstrap{}, &Status{}, &Recipe{}} {
			if Decode(data, doc) != nil {
				continue
			}
			again, err := Encode(doc)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, data) {
				t.Errorf("%T: %q is taken, but encodes to %q", doc, data, again)
			}
		}
	})
}
