// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"slices"
	"sync"
	"testing"
)

// TestKeysAreReadOnce: who asks for the same list again gets the same keys, and another list is another.
func TestKeysAreReadOnce(t *testing.T) {
	texts := make([]string, 3)
	for i := range texts {
		key, err := Generate()
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(VerifierOf(key).PEM())
	}
	read := func(texts []string) []Verifier {
		keys, err := ParsePublics(texts)
		if err != nil || len(keys) != len(texts) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for i, k := range keys {
			if string(k.PEM()) != texts[i] {
				t.Fatalf("key %d is not that of its text", i)
			}
		}
		return keys
	}
	clear(read(texts)) // what is given out is its caller's
	if allocs := testing.AllocsPerRun(10, func() { read(texts) }); allocs > 10 {
		t.Errorf("%.0f allocations", allocs)
	}
	mine := slices.Clone(texts)
	read(mine)
	mine[0] = "" // and so is what is asked
	read(texts)
	if keys, err := ParsePublics([]string{texts[0], texts[1], "none"}); err == nil {
		t.Errorf("%d keys of a list with none", len(keys))
	}
	var group sync.WaitGroup
	for _, list := range [][]string{texts[:1], texts[1:], texts, nil} {
		group.Go(func() {
			for range 100 {
				if keys, err := ParsePublics(list); err != nil || len(keys) != len(list) || len(list) > 0 && string(keys[0].PEM()) != list[0] {
					t.Errorf("%d keys, %v", len(keys), err)
				}
			}
		})
	}
	group.Wait()
}

// TestIsID: the id of a key is one; what is shorter, longer, of another alphabet or in two lines is not.
func TestIsID(t *testing.T) {
	key, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	id := VerifierOf(key).ID()
	for text, want := range map[string]bool{id: true, "": false, "bad": false, id[1:]: false, id + "A": false, id[:20] + "\n" + id[20:]: false,
		"-" + id[1:]: false, id[:43]: false} {
		if IsID(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
