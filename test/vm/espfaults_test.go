// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// espFrom and espTo are where the partition that firmware starts from is on a disk.
const (
	espFrom = 1 << 20
	espTo   = espFrom + 1<<30
)

// TestLongESPFaults spoils the file system that a disk's loaders are in, each way on a copy of a
// disk that ran well, and publishes a newer loader: the machine starts from the one that it has,
// and its node is degraded and says why. What is mended takes the loader that waits.
func TestLongESPFaults(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "mcopy", "mdel")
	f := fleet(t, withUEFI...)
	o := f.disk(t)
	number := f.publishLoader(t)
	const unsized = `at=$(grep -abo -m1 'SPOILED TXT' "$1" | head -n1 | cut -d: -f1); printf '\000\000\020\000' | dd of="$1" bs=1 seek=$((at + 28)) conv=notrunc status=none`
	for name, c := range map[string]struct{ spoils, within, why, mends string }{
		"full": {spoils: `free=$(mdir -i "$1@@1M" :: | tail -n2 | tr -dc 0-9); truncate -s $((free - 20000000)) "$1.fill"; mcopy -i "$1@@1M" "$1.fill" ::/filler; rm "$1.fill"`,
			why: "are free: no room", mends: `mdel -i "$1@@1M" ::/filler`},
		"damaged": {spoils: `printf hello | mcopy -i "$1@@1M" - ::/spoiled.txt; ` + unsized,
			why: "it is damaged: file /SPOILED.TXT", mends: `at=$(grep -abo -m1 'SPOILED TXT' "$1" | head -n1 | cut -d: -f1); printf '\005\000\000\000' | dd of="$1" bs=1 seek=$((at + 28)) conv=notrunc status=none`},
		"read-only": {within: "sudo blockdev --setro /dev/vda2", why: "can only be read"},
	} {
		t.Run(name, func(t *testing.T) {
			o := copyOf(t, o, name)
			sh(t, "true; "+c.spoils, o.Disk)
			m := f.start(t, o)
			s := f.login(t, m)
			run(t, s, "true; "+c.within)
			run(t, s, "sudo caisson-agent sync || true") // it ends with what is wrong
			says(t, s, c.why)
			if st := status(t, s); st.Health != "degraded" || !strings.Contains(st.HealthDetail, c.why) {
				t.Errorf("%+v", st)
			}
			shutDown(t, m, s)
			if on := loaders(t, o.Disk); strings.Contains(on, "+") || strings.Count(on, "caisson-") != 1 {
				t.Errorf("on the disk are\n%s", on)
			}
			sh(t, "true; "+c.mends, o.Disk)
			m = f.start(t, o)
			waitFor(t, m, 0, "caisson: state disk /dev/vda1")
			if console := m.Console.String(); strings.Contains(console, "on trial") {
				t.Error("it did not start from the loader that it had")
			}
			s = f.login(t, m)
			says(t, s, fmt.Sprintf("loader %d is on this machine's disk, on trial", number))
			if st := status(t, s); st.Health != "ok" {
				t.Errorf("once it is mended: %+v", st)
			}
		})
	}
}

// logged is a machine whose disk notes each write in the order that it was made, in a file.
func logged(o machine.Options, log string) machine.Options {
	o.Extra = append(o.Extra, "-blockdev", "driver=file,node-name=below,filename="+o.Disk, "-blockdev", "driver=file,node-name=log,filename="+log,
		"-blockdev", "driver=blklogwrites,node-name=logged,file=below,log=log", "-device", "virtio-blk-pci,drive=logged,bootindex=1")
	o.Disk = ""
	return o
}

// write is one of a log.
type write struct {
	at   int64 // on the disk
	from int64 // in the log
	size int64
}

// writes reads a log of QEMU's driver blklogwrites, which is that of Linux's dm-log-writes.
func writes(t *testing.T, log *os.File) (list []write) {
	t.Helper()
	head := make([]byte, 32)
	if _, err := log.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	count, sector := le.Uint64(head[16:]), int64(le.Uint32(head[24:]))
	if le.Uint64(head) != 0x6a736677736872 || sector < 512 {
		t.Fatalf("it is not a log: % x", head)
	}
	at := sector
	for range count {
		if _, err := log.ReadAt(head, at); err != nil {
			t.Fatal(err)
		}
		flags := le.Uint64(head[16:])
		w := write{at: int64(le.Uint64(head)) * sector, from: at + sector, size: int64(le.Uint64(head[8:])) * sector}
		at += sector
		if flags&4 != 0 { // a discard has no data, and nothing needs what it takes away
			continue
		}
		at += w.size
		list = append(list, w)
	}
	return list
}

// TestLongLoaderUpdateCuts notes all that an update of a disk's loader writes, in a machine, and
// has firmware start what such a write leaves when it is the last one before the power goes: some
// of the loader's own bytes, and all that make it one of the disk's.
func TestLongLoaderUpdateCuts(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir")
	f := fleet(t, withUEFI...)
	o := f.disk(t)
	start := copyOf(t, o, "before").Disk
	number := f.publishLoader(t)
	log := filepath.Join(f.Dir, "writes")
	sh(t, `: > "$1"`, log)
	m, s := f.arrives(t, logged(o, log))
	says(t, s, fmt.Sprintf("loader %d is on this machine's disk, on trial", number))
	shutDown(t, m, s)

	written, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close() // only read
	all := writes(t, written)
	var update []int // its writes; what else is written is the state
	for i, w := range all {
		if w.at >= espFrom && w.at < espTo {
			update = append(update, i)
		}
	}
	const end = 10 // both tables, the note of what is free, the name
	if len(update) < 2*end {
		t.Fatalf("the update made %d writes", len(update))
	}
	bytes := update[:len(update)-end]
	cuts := append([]int{bytes[0], bytes[len(bytes)/2]}, update[len(bytes):]...)
	t.Logf("%d writes, %d of them of the update; %d cuts", len(all), len(update), len(cuts))
	trials := 0
	for _, last := range cuts {
		c := o
		c.Name = fmt.Sprintf("cut-%d", last)
		c.Disk = filepath.Join(f.Dir, c.Name+".raw")
		sh(t, `cp --sparse=always "$1" "$2"`, start, c.Disk)
		replay(t, written, all[:last+1], c.Disk)
		m := f.start(t, c)
		waitFor(t, m, 0, "caisson: loader of fleet quickstart")
		waitFor(t, m, 0, "caisson: overlay of node alpha, generation 1")
		if strings.Contains(m.Console.String(), "on trial") {
			trials++
		}
		m.PowerCut()
		if err := os.Remove(c.Disk); err != nil {
			t.Fatal(err)
		}
	}
	if trials == 0 || trials == len(cuts) {
		t.Errorf("%d of %d cuts started the newer loader: the cuts lie not around its name", trials, len(cuts))
	}
}

// replay makes the writes of a log on a disk.
func replay(t *testing.T, log io.ReaderAt, list []write, disk string) {
	t.Helper()
	d, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if _, err := io.Copy(io.NewOffsetWriter(d, w.at), io.NewSectionReader(log, w.from, w.size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
