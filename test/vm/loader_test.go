// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
)

// fastConsole boots a loader that prints a hundred lines at once, and wants all of
// them on the console. By default the kernel takes ten lines in five seconds from a
// process, and the last line of a loader is the reason why it gives up.
func (f *Fleet) fastConsole(t *testing.T) {
	kernel := filepath.Join(f.Dir, "netboot", "kernel")
	a := cpio.New()
	agent, err := os.ReadFile(filepath.Join(f.Bin, "caisson-agent"))
	if err != nil {
		t.Fatal(err)
	}
	a.File("init", agent, 0o755)
	a.Char("dev/console", 0o600, 5, 1)
	// A hundred modules that are listed and not there: an error each.
	var names, dep strings.Builder
	for n := range 100 {
		fmt.Fprintf(&names, "gone%02d\n", n)
		fmt.Fprintf(&dep, "kernel/gone%02d.ko:\n", n)
	}
	modules := filepath.Join(paths.ModulesDir, release(t, kernel))
	a.File(paths.ModulesLoad, []byte(names.String()), 0o644)
	a.File(modules+"/modules.dep", []byte(dep.String()), 0o644)
	a.File(modules+"/modules.alias", nil, 0o644)
	site, err := os.ReadFile(filepath.Join(f.Dir, "netboot", "site.cpio"))
	if err != nil {
		t.Fatal(err)
	}
	initrd := bytes.NewBuffer(site) // the kernel unpacks archives one after the other
	if _, err := a.WriteTo(initrd); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(f.Dir, "console.img")
	if err := os.WriteFile(name, initrd.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	m := f.start(t, machine.Options{Name: "console", MAC: "52:54:00:00:00:0c", Memory: 512, Kernel: kernel, Initrd: name, Append: "console=ttyS0 no_timer_check"})
	waitFor(t, m, 0, "caisson: load module gone99:")
	for n := range 100 {
		if line := fmt.Sprintf("caisson: load module gone%02d:", n); !strings.Contains(m.Console.String(), line) {
			t.Errorf("the console lost %q", line)
		}
	}
}

// release reads a bzImage's release, see the kernel's Documentation/arch/x86/boot.rst.
func release(t *testing.T, kernel string) string {
	t.Helper()
	image, err := os.ReadFile(kernel)
	if err != nil {
		t.Fatal(err)
	}
	at := 0x200 + int(binary.LittleEndian.Uint16(image[0x20e:]))
	text, _, _ := bytes.Cut(image[at:at+200], []byte{0})
	return strings.Fields(string(text))[0]
}
