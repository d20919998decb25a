// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"
	"testing"
)

// records is /dev/kmsg: one write is one record, and a long one is refused.
type records struct {
	t    *testing.T
	text []string
}

func (r *records) Write(b []byte) (int, error) {
	if len(b) > 1000 || strings.Count(string(b), "\n") != 1 || !strings.HasPrefix(string(b), "<3>caisson: ") {
		r.t.Errorf("a record of %d bytes: %.40q", len(b), b)
	}
	r.text = append(r.text, strings.TrimSuffix(strings.TrimPrefix(string(b), "<3>caisson: "), "\n"))
	return len(b), nil
}

func TestTalkLargerThanARecord(t *testing.T) {
	r := &records{t: t}
	long := strings.Repeat("x", 2500)
	Console{r}.Say("first\n%s", long)
	if r.text[0] != "first" || strings.Join(r.text[1:], "") != long {
		t.Errorf("%q", r.text)
	}
}
