// SPDX-License-Identifier: Apache-2.0

package record

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// others load and save a state or the record of a boot beside this package, by why.
var others = map[string]string{
	"record/state":        "it is theirs to know how",
	"record/track":        "what is accepted is kept before anybody acts on it",
	"boot/initramfs":      "the loader is alone",
	"boot/nextroot":       "the record is another root's",
	"node/effect/time.go": "what it remembers of the state is another goroutine's, which hangs",
	"record/record.go":    "it is this one",
}

// The parts of a running node neither load nor save what is written down.
func TestNobodyElseSaves(t *testing.T) {
	direct := regexp.MustCompile(`[fF]older\.(Load|Save|SaveVerdict)\(|\bSaveBoot\(`)
	met := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil || !direct.Match(text) {
			return err
		}
		name = strings.TrimPrefix(name, "../")
		for may := range others {
			if name == may || strings.HasPrefix(name, may+"/") {
				met[may] = true
				return nil
			}
		}
		t.Errorf("%s loads or saves a state or the record of a boot by itself: read a Snapshot, and commit a Change", name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for may := range others {
		if !met[may] {
			t.Errorf("%s does so no more: take its row out", may)
		}
	}
}
