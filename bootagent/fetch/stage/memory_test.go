// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestMemoryRefuses(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		total, available int64
		missing          []int64
		fits             bool
	}{
		"what fits exactly":          {8192, 1024 + 300, []int64{100, 200}, true},
		"one more":                   {8192, 1024 + 300, []int64{100, 201}, false},
		"a small machine keeps more": {512, 128 + 99, []int64{100}, false},
		"and no more":                {512, 128 + 100, []int64{100}, true},
		"nothing is missing":         {8192, 0, nil, true},
		"nothing is available":       {8192, 0, []int64{1}, false},
	} {
		m := Memory{Total: c.total * mib, Available: c.available * mib}
		var missing []spec.Blob
		for _, size := range c.missing {
			missing = append(missing, spec.Blob{Size: size * mib})
		}
		if why := m.Refuses(missing); (why == "") != c.fits {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestReadMemory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "meminfo")
	for text, want := range map[string]Memory{
		"MemTotal:        2000 kB\nMemFree:         10 kB\nMemAvailable:    1000 kB\nBuffers: 1 kB\n": {2000 << 10, 1000 << 10},
		"MemTotal:        2000 kB\n": {},
		"":                           {},
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := ReadMemory(name); (err == nil) != (want != Memory{}) || err == nil && m != want {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
	if m, err := ReadMemory("/proc/meminfo"); err != nil || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("this machine: %+v, %v", m, err)
	}
}

func TestMemoryBoots(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		available int64
		missing   []int64
		needs     int64 // 0: it boots
	}{
		"what fits exactly":    {ForStart + 300*mib, []int64{100 * mib, 200 * mib}, 0},
		"one byte more":        {ForStart + 300*mib, []int64{100 * mib, 200*mib + 1}, 700 + 1 + 8},
		"much more":            {ForStart + 300*mib, []int64{1100 * mib}, 1600 + 8},
		"nothing is missing":   {0, nil, 0},
		"nothing is available": {0, []int64{4 * mib}, 700 + 100 + 100/8 + 1 + 8},
	} {
		m := Memory{Total: 700 * mib, Available: c.available}
		var missing []spec.Blob
		for _, size := range c.missing {
			missing = append(missing, spec.Blob{Size: size})
		}
		err := m.Boots(missing)
		var little *TooLittle
		if errors.As(err, &little) != (c.needs != 0) {
			t.Errorf("%s: %v", name, err)
		} else if little != nil && (little.More() != c.needs-700 || !strings.Contains(err.Error(), fmt.Sprintf("needs %d MiB, and it has 700", c.needs))) {
			t.Errorf("%s: %v, want %d MiB", name, err, c.needs)
		}
	}
}
