// SPDX-License-Identifier: Apache-2.0

package updates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/peers/debian"
)

// format is a file system that an image may have.
type format struct {
	name    string
	version string // prints that of its program
	made    string // makes $1.image of the tree $1
}

var formats = []format{
	{"squashfs-zstd15", "mksquashfs -version | head -1", "mksquashfs $1 $1.image -noappend -comp zstd -Xcompression-level 15 -b 128K " +
		"-no-fragments -no-progress -quiet -xattrs"},
	{"squashfs-zstd3", "mksquashfs -version | head -1", "mksquashfs $1 $1.image -noappend -comp zstd -Xcompression-level 3 -b 128K " +
		"-no-fragments -no-progress -quiet -xattrs"},
	{"erofs-zstd15", "mkfs.erofs --version 2>&1 | head -1", "mkfs.erofs --quiet -zzstd,level=15 -C131072 -T1767225600 -Uclear $1.image $1"},
	{"erofs-zstd3", "mkfs.erofs --version 2>&1 | head -1", "mkfs.erofs --quiet -zzstd,level=3 -C131072 -T1767225600 -Uclear $1.image $1"},
	{"erofs-lz4hc", "mkfs.erofs --version 2>&1 | head -1", "mkfs.erofs --quiet -zlz4hc,level=9 -C65536 -T1767225600 -Uclear $1.image $1"},
}

// FormatNames returns the names of all.
func FormatNames() (names []string) {
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// image is what one format made of the trees.
type image struct {
	Format  string      `json:"format"`
	Version string      `json:"version"`
	Make    debian.Took `json:"make"`
	Bytes   int64       `json:"bytes"`
	New     int64       `json:"newBytes"` // of chunks that the image of the old tree does not have
	All     debian.Took `json:"readAll"`
	Random  debian.Took `json:"readRandom"` // 4,000 times 4 KiB
}

// Formats makes images of the trees of both states by each format, reads them, and writes what it
// measured below out.
func Formats(runs int, out, work string, names []string) (err error) {
	h, remove, err := newHost(work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := h.prepare(work); err != nil {
		return err
	}
	var all []image
	for range runs {
		for _, f := range formats {
			if len(names) > 0 && !slices.Contains(names, f.name) {
				continue
			}
			i, err := h.format(f)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			all = append(all, i)
		}
	}
	return chart.Write(out, "formats", all, chart.Peers(all, image.who), formatRows(all))
}

// formatted makes images of both trees.
func (h *host) formatted(f format) (i image, err error) {
	version, err := h.run(f.version)
	if err != nil {
		return i, err
	}
	i.Format, i.Version = f.name, strings.TrimSpace(string(version))
	for _, tree := range []string{"old", "new"} {
		if _, err := h.run("rm -f " + tree + ".image; set -- " + tree + "; " + f.made); err != nil {
			return i, err
		}
		i.Make = h.took
	}
	older, err := os.ReadFile(filepath.Join(h.dir, "old.image"))
	if err != nil {
		return i, err
	}
	newer, err := os.ReadFile(filepath.Join(h.dir, "new.image"))
	if err != nil {
		return i, err
	}
	i.Bytes = int64(len(newer))
	i.New, err = missing(older, newer)
	return i, err
}

// format makes images of both trees and reads the new one.
func (h *host) format(f format) (image, error) {
	i, err := h.formatted(f)
	if err != nil {
		return i, err
	}
	// No page of a file system that was just mounted is in memory.
	const mounted = "mkdir -p at && mount -o loop,ro new.image at && "
	if _, err := h.run(mounted + "find at -type f -print0 | xargs -0 cat >/dev/null"); err != nil {
		return i, err
	}
	i.All = h.took
	_, err = h.run(mounted + "./peers -read at")
	i.Random = h.took
	return i, err
}

// missing returns how many bytes of an image are in no chunk of an older one.
func missing(older, newer []byte) (int64, error) {
	var index bytes.Buffer
	if err := delta.WriteIndex(&index, bytes.NewReader(newer)); err != nil {
		return 0, err
	}
	a, err := delta.Assemble(nowhere{}, index.Bytes(), int64(len(newer)))
	if err != nil {
		return 0, err
	}
	err = a.Take(context.Background(), bytes.NewReader(older))
	return a.Missing(), err
}

// nowhere is a file that keeps nothing.
type nowhere struct{}

func (nowhere) ReadAt([]byte, int64) (int, error)      { return 0, errors.ErrUnsupported }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Read reads 4 KiB at 4,000 places of the files below a directory, the same ones each time.
func Read(dir string) error {
	var names []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() >= 4096 {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		return errors.Join(err, fmt.Errorf("%d files are in %s", len(names), dir))
	}
	chosen := rand.New(rand.NewPCG(45, 45))
	buf := make([]byte, 4096)
	for range 4000 {
		if err := readAt(names[chosen.IntN(len(names))], buf, chosen); err != nil {
			return err
		}
	}
	return nil
}

func readAt(name string, buf []byte, chosen *rand.Rand) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// What is read ahead is read for nothing here.
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return err
	}
	_, err = file.ReadAt(buf, chosen.Int64N(info.Size()/4096)*4096)
	return err
}

// who is the format of an image.
func (i image) who() chart.Peer { return chart.Peer{Name: i.Format, Version: i.Version} }

// formatRows are what is shown.
func formatRows(all []image) []chart.Row {
	return chart.Rows(all, image.who, []chart.Kind[image]{
		{Name: "size", Unit: "MB", Of: func(i image) float64 { return float64(i.Bytes) / 1e6 }},
		{Name: "new after the update", Unit: "MB", Of: func(i image) float64 { return float64(i.New) / 1e6 }},
		{Name: "made, processor", Unit: "s", Of: func(i image) float64 { return i.Make.Processor }},
		{Name: "all read, clock", Unit: "s", Of: func(i image) float64 { return i.All.Seconds }},
		{Name: "all read, processor", Unit: "s", Of: func(i image) float64 { return i.All.Processor }},
		{Name: "4,000 random reads, clock", Unit: "s", Of: func(i image) float64 { return i.Random.Seconds }},
		{Name: "4,000 random reads, processor", Unit: "s", Of: func(i image) float64 { return i.Random.Processor }},
	})
}
