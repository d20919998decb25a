// SPDX-License-Identifier: Apache-2.0

package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// A value that stands somewhere is seen, whatever stands before it, and wherever a block ends.
func TestFind(t *testing.T) {
	value := Value()
	for _, value := range []string{value, "$6$salt$abcdefghijklmnopqrstuvwxyz./"} {
		quoted, err := json.Marshal("say " + value)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{value, string(quoted), url.QueryEscape(value), hex.EncodeToString([]byte("x" + value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
			base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte("1" + value)), base64.StdEncoding.EncodeToString([]byte("12" + value + "3"))} {
			places := []int{0}
			if i == 0 {
				places = []int{0, 1, block - 10, block, 2*block - 3, 3*block + 7}
			}
			for _, before := range places {
				data := append(bytes.Repeat([]byte{0}, before), text...)
				found, err := Find(bytes.NewReader(append(data, 0, 0)), map[string]string{"db": value, "other": Value()})
				if err != nil || len(found) == 0 || !strings.HasPrefix(found[0], "secret db ") {
					t.Errorf("%d behind %d bytes: %q, %v", i, before, found, err)
				}
			}
		}
	}
	if found, err := Find(strings.NewReader(strings.Repeat("nothing of it ", 1<<17)), map[string]string{"db": value}); err != nil || found != nil {
		t.Errorf("%q, %v", found, err)
	}
	if Value() == value {
		t.Error("two tests have the same secret")
	}
}
