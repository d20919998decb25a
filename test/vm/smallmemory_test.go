// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongSmallMemory boots a layer of more than 300 MB, most of it noise that nothing
// compresses, on machines of 768 MiB: with its images in memory, and on a disk. Images in
// memory cost what they have compressed, and at most 64 MiB. A smaller machine says how much
// it lacks, and comes up with that.
func TestLongSmallMemory(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	kernel, initrd := f.loader(t) // of the layer before, whose agent is small
	f.build(t, "--agent", f.largeAgent(t, 225<<20))
	f.publish(t)
	boot := func(o machine.Options) (*machine.Machine, *machine.Session) {
		t.Helper()
		o = f.byHand(t, o)
		o.Kernel, o.Initrd = kernel, initrd
		m := f.start(t, o)
		if waitFor(t, m, 0, "caisson: entering the layer", "too little memory") == "too little memory" {
			return m, nil
		}
		s := f.login(t, m)
		if st := status(t, s); st.Health != "ok" || st.Sync != "current" {
			t.Errorf("%s: %+v", o.Name, st)
		}
		return m, s
	}

	m, s := boot(machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b", Memory: 768})
	if s == nil {
		t.Fatal("768 MiB do not do")
	}
	images, inMemory := heldInMemory(t, s), takes(t, s)
	m.PowerCut()
	if images < 300<<10 {
		t.Errorf("the images have %d KiB", images)
	}
	o := f.withDisk(t)
	o.Memory = 768
	if err := os.Remove(o.Disk); err != nil { // it is too small for this layer
		t.Fatal(err)
	}
	if err := machine.MakeStateDisk(t.Context(), o.Disk, 2048, ""); err != nil {
		t.Fatal(err)
	}
	m, s = boot(o)
	onDisk := takes(t, s)
	m.PowerCut()
	beside := inMemory - onDisk - images
	t.Logf("of 768 MiB a root takes %d KiB with its images in memory, %d KiB with them on a disk; they have %d KiB, so %.1f MiB are beside them",
		inMemory, onDisk, images, float64(beside)/1024)
	if beside > 64<<10 {
		t.Error("images in memory take more than they have")
	}

	m, s = boot(machine.Options{Name: "small", MAC: "52:54:00:00:00:0b", Memory: 448})
	if s != nil {
		t.Fatal("448 MiB are enough")
	}
	waitFor(t, m, 0, "THIS NODE DOES NOT COME UP: it has too little memory")
	lacks := lacksMore(t, m)
	m.PowerCut()
	least := 448 + lacks
	m, s = boot(machine.Options{Name: "least", MAC: "52:54:00:00:00:0b", Memory: least})
	if s == nil {
		t.Fatalf("with 448 MiB it wants %d more, and with %d it still lacks %d", lacks, least, lacksMore(t, m))
	}
	t.Logf("the smallest machine that takes the layer has %d MiB, of which a root takes %d KiB: %s", least, takes(t, s), run(t, s, "grep -E 'MemTotal|MemAvailable' /proc/meminfo | tr -s ' \n' ' '"))
	m.PowerCut()
}

// takes is how many KiB of its memory a machine cannot give to something else.
func takes(t *testing.T, s *machine.Session) (kib int) {
	t.Helper()
	out := run(t, s, "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches >/dev/null; awk '/^MemTotal/ {all=$2} /^MemAvailable/ {print all-$2}' /proc/meminfo")
	if _, err := fmt.Sscan(out, &kib); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return kib
}

var tooLittle = regexp.MustCompile(`give it (\d+) MiB more`)

// lacksMore is how many MiB a loader says that its machine lacks.
func lacksMore(t *testing.T, m *machine.Machine) int {
	t.Helper()
	waitFor(t, m, 0, "MiB more, or a state disk")
	found := tooLittle.FindStringSubmatch(m.Console.String())
	mib, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return mib
}

// largeAgent is the agent with some noise behind it, of so many bytes. Its image cannot be
// compressed, and has nothing in common with another.
func (f *Fleet) largeAgent(t *testing.T, noise int) (file string) {
	t.Helper()
	file = filepath.Join(f.Dir, "large-agent")
	sh(t, `cp "$1" "$2"; head -c "$3" /dev/urandom >>"$2"`, filepath.Join(f.Bin, "caisson-agent"), file, strconv.Itoa(noise))
	return file
}
