// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestReplay(t *testing.T) {
	const line = `{"event":"stack","layer":"sha256:l","core":"sha256:c"}`
	all, register, err := Replay([32]byte{}, []byte(line+"\n"+line+"\n"))
	d := sha256.Sum256([]byte(line))
	if err != nil || len(all) != 2 || all[1].Layer != "sha256:l" || register != Extend(Extend([32]byte{}, d), d) {
		t.Errorf("%+v, %x, %v", all, register, err)
	}
	for log, want := range map[string]string{
		line:                         "it ends within a line",
		"\n":                         "line 1: ",
		line + "\n" + "{} \n":        "line 2: ",
		`{"event":"x","a":1}` + "\n": "line 1: ",
		strings.Repeat(line+"\n", MaxMeasured/len(line)): "are the most",
	} {
		if _, _, err := Replay([32]byte{}, []byte(log)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", log, err)
		}
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"event":"stack","layer":"l","core":"c"}` + "\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		all, register, err := Replay([32]byte{}, log)
		if err != nil {
			return
		}
		var again [32]byte
		for _, m := range all {
			line, err := Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			again = Extend(again, sha256.Sum256(line))
		}
		if again != register {
			t.Errorf("what was read is not what was measured: %q", log)
		}
	})
}
