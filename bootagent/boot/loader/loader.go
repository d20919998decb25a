// SPDX-License-Identifier: Apache-2.0

// Package loader keeps what a node's disk starts: unified kernel images beside one another in
// the partition that firmware starts from, of which systemd-boot starts the one with the
// highest number.
//
// A new one is on trial: systemd-boot counts its starts in its file's name, see
// https://systemd.io/AUTOMATIC_BOOT_ASSESSMENT. A boot that was good takes the count away. A
// loader whose starts are spent stays as the note of that, behind the one before it. Loaders
// only go forward; an older layer is entered by kexec.
//
// What comes is named by digest in fleet:current and copied as it is. Which loader starts is decided
// by names of files alone; [Volume] writes them so that a power cut costs nothing. Package node says when a boot was good.
//
// A CD, a USB stick or a disk of 'caisson image' carries an OCI layout beside its loader, in the
// file system that firmware started from: [Media] are those that are there. Nothing on them is
// trusted: what is read of a layout is verified as an answer of the registry is.
package loader

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// folder is where systemd-boot looks for unified kernel images.
const folder = "EFI/Linux"

// Partition is an open EFI system partition.
type Partition struct {
	volume *Volume
	list   []entry
	close  func() error
}

// Open opens a partition that nobody has mounted. One that is damaged is not opened.
func Open(device string) (*Partition, error) {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if flag, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET); err == nil && flag != 0 { // the kernel opens it all the same
		return nil, errors.Join(fmt.Errorf("%s can only be read", device), f.Close())
	}
	size, err := f.Seek(0, io.SeekEnd)
	var p *Partition
	if err == nil {
		p, err = open(f, size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", device, err), f.Close())
	}
	p.close = f.Close
	return p, nil
}

func open(d Device, size int64) (p *Partition, err error) {
	p = &Partition{close: func() error { return nil }}
	if p.volume, err = OpenVolume(d, size); err != nil {
		return nil, err
	}
	return p, p.look()
}

// Close closes the partition.
func (p *Partition) Close() error { return p.close() }

func (p *Partition) look() error {
	files, err := p.volume.Files(folder)
	if err != nil {
		return err
	}
	p.list = nil
	for _, f := range files {
		if e, ok := parse(f.Name); ok {
			p.list = append(p.list, e)
		}
	}
	inOrder(p.list)
	return nil
}

// Keep takes the count away from the loader that this boot began with, as [Booted] has it: it
// was good. It returns its number, 0 where there was nothing to do.
func (p *Partition) Keep(booted string) (number int64, err error) {
	was, ok := parse(booted)
	if !ok {
		return 0, nil
	}
	same := func(e entry, counted bool) bool {
		return e.number == was.number && e.id == was.id && e.counted == counted
	}
	i := slices.IndexFunc(p.list, func(e entry) bool { return same(e, true) })
	if i < 0 {
		return 0, nil
	}
	if slices.ContainsFunc(p.list, func(e entry) bool { return same(e, false) }) { // a cut came between the two names
		err = p.volume.Remove(folder, p.list[i].file)
	} else {
		err = p.volume.Rename(folder, p.list[i].file, was.good())
	}
	if err != nil {
		return 0, fmt.Errorf("keep loader %d: %w", was.number, err)
	}
	return was.number, p.look()
}

// Follow puts a loader beside the newest that is good, and removes what is older than that, or
// spent. fetch brings the program. It returns the number that came, 0 where none did, and why
// it is not the one that is wanted.
func (p *Partition) Follow(want spec.Loader, fetch func(spec.Blob) (io.ReadCloser, error)) (number int64, why Why, err error) {
	if err := Check(want); err != nil {
		return 0, Why{}, err
	}
	goes, comes, why := plan(p.list, of(want))
	if !comes {
		return 0, why, nil
	}
	for _, e := range goes {
		if err := p.volume.Remove(folder, e.file); err != nil {
			return 0, Why{}, fmt.Errorf("remove loader %d: %w", e.number, err)
		}
	}
	body, err := fetch(want.Image)
	if err != nil {
		return 0, Why{}, fmt.Errorf("fetch loader %d: %w", want.Number, err)
	}
	err = p.volume.Create(folder, of(want).trial(), Verified(body, want.Image), want.Image.Size)
	if err = errors.Join(err, body.Close()); err != nil {
		return 0, Why{}, fmt.Errorf("write loader %d: %w", want.Number, err)
	}
	return want.Number, Why{}, p.look()
}

// Check refuses what cannot be the name of a loader.
func Check(l spec.Loader) error {
	if !digest.Valid(l.Image.Digest) || !digest.Valid(l.ESP.Digest) || l.Number <= 0 || l.Number >= 1e18 ||
		l.Image.Size <= 0 || l.ESP.Size <= 0 || l.ESP.Size > maxESP {
		return fmt.Errorf("fleet:current names no loader: number %d, program %.80q with %d bytes, file system %.80q with %d "+
			"bytes", l.Number, l.Image.Digest, l.Image.Size, l.ESP.Digest, l.ESP.Size)
	}
	return nil
}

// maxESP is the size of the partition in bytes.
const maxESP = 1 << 30

// Verified reads a blob, and gives the verdict in place of its end.
func Verified(from io.Reader, b spec.Blob) io.Reader {
	return &verified{from: io.LimitReader(from, b.Size+1), sum: sha256.New(), want: b}
}

type verified struct {
	from io.Reader
	sum  hash.Hash
	want spec.Blob
	size int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	v.size += int64(n)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if got := digest.From(v.sum); got != v.want.Digest || v.size != v.want.Size {
		return n, fmt.Errorf("it is %s with %d bytes, not %s with %d", got, v.size, v.want.Digest, v.want.Size)
	}
	return n, io.EOF
}

// countPath has the file of the loader that is on trial, see LoaderBootCountPath in
// https://systemd.io/BOOT_LOADER_INTERFACE. It lasts as long as the firmware is not started
// over: behind a kexec it is there, too.
const countPath = "LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// Booted returns the file of the loader that this boot began with, where that one is on trial,
// "" where none is. variables is [efivar.Dir].
func Booted(variables string) (file string, err error) {
	data, err := os.ReadFile(filepath.Join(variables, countPath))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || len(data) < 4 {
		return "", err
	}
	data = data[4:] // attributes
	var units []uint16
	for ; len(data) > 1; data = data[2:] {
		if unit := binary.LittleEndian.Uint16(data); unit != 0 {
			units = append(units, unit)
		}
	}
	path := strings.ReplaceAll(string(utf16.Decode(units)), `\`, "/")
	return filepath.Base(path), nil
}

// entry is a loader on a disk, by the name of its file.
type entry struct {
	file    string
	number  int64
	id      string // of its bytes
	counted bool   // on trial: systemd-boot counts its starts
	left    int    // starts that are left to it
}

// named is "caisson-<number>-<id>.efi", with systemd-boot's count before the end: "+3", and
// once it was started "+2-1".
var named = regexp.MustCompile(`^caisson-([0-9]{1,18})-([0-9a-f]{12})(?:\+([0-9]{1,9})(?:-[0-9]{1,9})?)?\.efi$`)

// parse reads the name of a file. What is not called so is not ours.
func parse(file string) (e entry, ok bool) {
	m := named.FindStringSubmatch(file)
	if m == nil {
		return e, false
	}
	e = entry{file: file, id: m[2], counted: m[3] != ""}
	e.number, _ = strconv.ParseInt(m[1], 10, 64) // it has few enough digits
	if e.counted {
		e.left, _ = strconv.Atoi(m[3]) // likewise
	}
	return e, true
}

// tries is how often a loader that is new is started before the one before it is again.
const tries = 3

// good is the file's name without a count, trial the one that it begins with.
func (e entry) good() string  { return fmt.Sprintf("caisson-%d-%s.efi", e.number, e.id) }
func (e entry) trial() string { return fmt.Sprintf("caisson-%d-%s+%d.efi", e.number, e.id, tries) }

// spent reports whether a loader was started as often as it may be, and never proved itself.
func (e entry) spent() bool { return e.counted && e.left == 0 }

// of is the entry of a loader that fleet:current names.
func of(l spec.Loader) entry {
	return entry{number: l.Number, id: digest.Hex(l.Image.Digest)[:12]}
}

// inOrder sorts entries as systemd-boot does, see systemd-boot(7): what is spent comes last,
// and the higher number first. It starts the first one, spent or not.
func inOrder(list []entry) {
	slices.SortFunc(list, func(a, b entry) int {
		switch {
		case a.spent() != b.spent() && a.spent():
			return 1
		case a.spent() != b.spent():
			return -1
		}
		return cmp.Or(cmp.Compare(b.number, a.number), cmp.Compare(b.id, a.id))
	})
}

// Why says why the loader that is wanted does not come, or does not start.
type Why struct {
	Text  string // "" where nothing is to be said
	Ahead bool   // a newer one starts: nothing is wrong with the disk
}

// plan says which entries go and whether a loader comes, and where it does not, why. A number
// only rises; one that is spent is not tried again; the newest that is good always stays.
func plan(list []entry, want entry) (goes []entry, comes bool, why Why) {
	newest, starts := int64(-1), int64(-1) // and the newest that may still be started
	for _, e := range list {
		newest = max(newest, e.number)
		if !e.spent() {
			starts = max(starts, e.number)
		}
	}
	back := func(has int64) Why {
		return Why{fmt.Sprintf("fleet:current names loader %d, the disk has %d, and loaders never go back", want.number,
			has), want.number < starts}
	}
	for _, e := range list {
		switch {
		case e.number == want.number && e.id == want.id && e.spent():
			return nil, false, Why{Text: fmt.Sprintf("loader %d was started %d times and did not come up: the one before it "+
				"is used", e.number, tries)}
		case e.number == want.number && e.id == want.id && e.number < starts:
			return nil, false, back(starts)
		case e.number == want.number && e.id == want.id:
			return nil, false, Why{}
		case e.number == want.number:
			return nil, false, Why{Text: fmt.Sprintf("fleet:current names another loader %d than the one on the disk", e.number)}
		}
	}
	if want.number < newest {
		return nil, false, back(newest)
	}
	good := slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e.counted })
	inOrder(good)
	for _, e := range list {
		switch {
		case len(good) > 0 && e != good[0], len(good) == 0 && e.spent() && len(list) > 1:
			goes = append(goes, e)
		}
	}
	return goes, true, Why{}
}
