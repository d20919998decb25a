// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"testing"
)

// TestGolden: the journal that 0.9.0 wrote is read, and written byte-equal.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/journal")
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for text := range bytes.Lines(golden) {
		l, err := whole.decodeLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, l)
	}
	if again, err := encode(lines); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("written otherwise: %v\n%s", err, again)
	}
	if entries, _, damaged := whole.decode(golden); len(damaged) > 0 || len(entries) != 1 || string(entries[id{"sysctl", "vm.swappiness"}].Prior) != `"60"` {
		t.Errorf("it has %+v, damaged %q", entries, damaged)
	}
}

// An agent that a node goes back to keeps the originals that a later one wrote down.
func TestAKeyOfALaterReleaseIsNoDamage(t *testing.T) {
	text := `{"add":{"item":"sysctl","key":"a","prior":"1","scope":"kernel","scopeId":"k","later":{"b":1}},"since":1}`
	l, err := whole.decodeLine(fmt.Appendf(nil, "%08x %s", crc32.Checksum([]byte(text), castagnoli), text))
	if err != nil || string(l.Add.Prior) != `"1"` {
		t.Errorf("%+v, %v", l, err)
	}
}
