// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"crypto/sha256"
	"debug/pe"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestMeasureAsSystemd: what systemd-measure computes of the same sections, for a kernel that
// takes more memory than it has bytes, too.
func TestMeasureAsSystemd(t *testing.T) {
	const program, file = "/usr/lib/systemd/systemd-measure", "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	stub, err := os.ReadFile(file)
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	require.Tool(t, program)
	sections := []UKISection{{".osrel", []byte("ID=caisson\n")}, {".cmdline", []byte("quiet")}, {".initrd", bytes.Repeat([]byte("i"), 70_000)}, {Kernel, stub}}
	var image bytes.Buffer
	if err := WriteUKI(&image, stub, sections); err != nil {
		t.Fatal(err)
	}
	all, register, err := MeasureUKI(image.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(all[0].Section, all[1].Section, all[2].Section, all[3].Section); names != ".linux.osrel.cmdline.initrd" {
		t.Fatal(names)
	}
	dir := t.TempDir()
	args := []string{"calculate", "--bank=sha256", "--phase=enter-initrd", "--json=short"}
	f, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all[4:] { // .sbat, which later stubs have of their own
		data, err := inMemory(stub, f.Section(m.Section))
		if err != nil {
			t.Fatal(err)
		}
		sections = append(sections, UKISection{m.Section, data})
	}
	for _, s := range sections {
		data := s.Data
		if s.Name == Kernel {
			data = append(bytes.Clone(data), make([]byte, int(wants(data))-len(data))...)
		}
		name := filepath.Join(dir, s.Name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--"+s.Name[1:]+"="+name)
	}
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		SHA256 []struct {
			PCR  int
			Hash string
		}
	}
	if err := json.Unmarshal(out, &want); err != nil || len(want.SHA256) != 1 {
		t.Fatalf("%s: %v", out, err)
	}
	phase := sha256.Sum256([]byte("enter-initrd"))
	got := sha256.Sum256(slices.Concat(register[:], phase[:]))
	if w := want.SHA256[0]; w.PCR != Register || w.Hash != fmt.Sprintf("%x", got) {
		t.Errorf("%x, systemd-measure says %+v", got, w)
	}
}

// TestMeasureRefuses what it would have to guess at.
func TestMeasureRefuses(t *testing.T) {
	stub, err := os.ReadFile("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	var cut bytes.Buffer
	if err := WriteUKI(&cut, stub, []UKISection{{Kernel, stub}}); err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(stub, []byte("systemd-stub 25"), []byte("systemd-stub 99"), 1)
	for want, image := range map[string][]byte{
		"what release 99":          later,
		"the stub tells no rel":    bytes.Replace(stub, []byte("systemd-stub 25"), []byte("systemd-stub xy"), 1),
		"read the image":           stub[:100],
		"section .linux is not wh": cut.Bytes()[:cut.Len()-4096],
	} {
		if _, _, err := MeasureUKI(image); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzMeasure(f *testing.F) {
	stub, err := os.ReadFile("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
	if err != nil {
		require.Missing(f, "tools", err.Error())
	}
	f.Add(stub)
	f.Add(stub[:512])
	f.Fuzz(func(t *testing.T, image []byte) {
		if all, _, err := MeasureUKI(image); err == nil && len(all) > len(measured) {
			t.Errorf("%d sections", len(all))
		}
	})
}
