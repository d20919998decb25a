// SPDX-License-Identifier: Apache-2.0

// Package media makes what machines without a boot network start from: a program for UEFI
// firmware, CDs and USB sticks, disks of machines.
//
//	.efi              the loader, a unified kernel image
//	.iso              the loader in an EFI system partition, for a CD and for a USB stick
//	.raw .raw.zst     a disk: the same partition with systemd-boot, and the state disk
//	.qcow2            the same as QEMU has it
//
// Each starts the loader that netboot serves, by the same kernel, initrd and site.cpio; what
// that does does not depend on where it came from. The same inputs make the same bytes, so
// a medium has no identity: the identifiers of a disk are [paths.ImageDisk] and numbers
// made from it, which the loader replaces at its first boot, unless the medium is one node's.
// It asks nobody. Only cmd/caisson and sandbox import it.
package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/format"
)

// Medium holds what is written to a file.
type Medium struct {
	Loader  *Loader
	Node    string // whose it is; its identifiers are then made from that name, and stay
	Fleet   string
	Carried string // directory of an OCI layout that goes along, "" for none
	State   int64  // bytes of a disk's state partition
	Content string // directory that is copied into it, "" for none
	Step    Step   // nil tells nobody

	room int64 // for loaders, in a disk's EFI system partition; 0 is espRoom
}

// formats are the ways to write a medium, by the end of a file's name.
var formats = []struct {
	suffix string
	write  func(Medium, context.Context, *os.File) error
}{
	{".efi", Medium.efi}, {".iso", Medium.iso}, {".raw", Medium.raw}, {".raw.zst", Medium.zstd}, {".qcow2", Medium.qcow2},
}

// writer returns what writes the format that a file's name asks for.
func writer(name string) (func(Medium, context.Context, *os.File) error, error) {
	var known []string
	for _, f := range formats {
		if base := filepath.Base(name); strings.HasSuffix(base, f.suffix) && base != f.suffix {
			return f.write, nil
		}
		known = append(known, f.suffix)
	}
	return nil, cli.Usage("the format follows the name: "+strings.Join(known, ", "), "there is no format for %q", name)
}

// CheckName returns an error where no format has the end of a file's name, or where that format has no room for a layer.
func CheckName(name string, withLayer bool) error {
	_, err := writer(name)
	if withLayer && strings.HasSuffix(name, ".efi") {
		return errNoRoom()
	}
	return err
}

func errNoRoom() error {
	return cli.Usage("an .iso or a disk has room for a layer", "--with-layer: an .efi holds only the loader")
}

// Write writes the medium to a file, or leaves the file as it was, also where ctx ends it.
func (m Medium) Write(ctx context.Context, name string) error {
	write, err := writer(name)
	if err != nil {
		return err
	}
	return fault.In(durable.Fill(name, 0o644, func(f *os.File) error { return write(m, ctx, f) }), "write %s", name)
}

func (m Medium) efi(_ context.Context, f *os.File) error {
	if m.Carried != "" {
		return errNoRoom()
	}
	_, err := f.Write(m.Loader.Image)
	return err
}

// fallback is the program that firmware starts of a medium that it does not know.
func (l *Loader) fallback() string {
	return "EFI/BOOT/BOOT" + map[string]string{"amd64": "X64", "arm64": "AA64"}[l.Arch] + ".EFI"
}

// carried lists what goes along, without what is hidden, such as a writer's lock.
func (m Medium) carried() (files []format.FATFile, err error) {
	if m.Carried == "" {
		return nil, nil
	}
	err = filepath.WalkDir(m.Carried, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(m.Carried, name)
		files = append(files, format.FATFile{Name: paths.MediumLayout + "/" + below, Size: info.Size(),
			Open: func() (io.ReadCloser, error) { return os.Open(name) }})
		return err
	})
	return files, err
}

func (l *Loader) volume(id uuid.UUID, size int64, files []format.FATFile) format.FATVolume {
	return format.FATVolume{Label: paths.MediumLabel, Serial: binary.BigEndian.Uint32(id[:]), Date: l.Date, Size: size, Files: files}
}

// disk and state are the identifiers of the partition table and of the state partition.
func (m Medium) disk() uuid.UUID  { return m.identifier(paths.ImageDisk) }
func (m Medium) state() uuid.UUID { return m.identifier(paths.ImageState) }

// esp is that of the partition that firmware starts from: the table's but for its last bit,
// by which the loader knows a table that is caisson's, too.
func (m Medium) esp() uuid.UUID {
	id := m.disk()
	id[15] ^= 1
	return id
}

// identifier is a fixed one, or where the medium is one node's, one made from its name.
func (m Medium) identifier(fixed string) uuid.UUID {
	id := uuid.MustParse(fixed)
	if m.Node != "" {
		id = uuid.NewHash(sha256.New(), id, []byte(m.Fleet+"/"+m.Node), 8)
	}
	return id
}

// held is a file of a medium that is in memory.
func held(name string, data []byte) format.FATFile {
	return format.FATFile{Name: name, Size: int64(len(data)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// WriteRescue writes a CD that carries a statement which lets an operator into a node, see package
// oci/trust/rescue; the same bytes are a stick's. Nothing boots from it. w reads as zeros.
func WriteRescue(w io.WriterAt, statement []byte, date time.Time) error {
	return format.ISOData(w, paths.RescueLabel, paths.RescueFile, date, statement)
}

// iso writes an image that firmware starts as a CD, and as a USB stick.
func (m Medium) iso(ctx context.Context, f *os.File) error {
	files, err := m.carried()
	if err != nil {
		return err
	}
	return m.cd(ctx, f, append(files, held(m.Loader.fallback(), m.Loader.Image)))
}

// cd writes an image of files that firmware starts as a CD, and as a USB stick.
func (m Medium) cd(ctx context.Context, f *os.File, files []format.FATFile) error {
	size, err := format.FATRoom(files, 0)
	if err != nil {
		return err
	}
	image := format.ISO{Label: paths.MediumLabel, Date: m.Loader.Date, Boot: size}
	if err := f.Truncate(image.Size()); err != nil {
		return err
	}
	if err := image.Write(f); err != nil {
		return err
	}
	if err := m.writeVolume(ctx, f, format.BootAt, size, files); err != nil {
		return err
	}
	return m.table(gpt.Partition{Index: 1, Type: gpt.EFISystemPartition, Name: paths.BootLabel, GUID: m.esp().String(),
		Start: format.BootAt / sector, End: (format.BootAt+uint64(size))/sector - 1}).Write(f, image.Size())
}

// sector is that of partition tables.
const sector = 512

// table is a partition table with the medium's identifier.
func (m Medium) table(parts ...gpt.Partition) *gpt.Table {
	t := &gpt.Table{LogicalSectorSize: sector, PhysicalSectorSize: sector, ProtectiveMBR: true, GUID: m.disk().String()}
	for _, p := range parts {
		t.Partitions = append(t.Partitions, &p)
	}
	return t
}

// Enrollment is a CD, and the same as a USB stick, whose systemd-boot puts keys into firmware that
// has none (setup mode), and starts the machine again. Firmware that has keys does not start it.
type Enrollment struct {
	Manager []byte                     // systemd-boot 252 or newer, unsigned
	Date    time.Time                  // of its files
	Updates map[efivar.Variable][]byte // of Platform, Exchange and Allowed
}

// enrolls are the settings of systemd-boot, see loader.conf(5), by which it asks nobody: it counts
// down on the screen, and a key press ends it.
const enrolls = "secure-boot-enroll force\nauto-firmware no\neditor no\n"

// Write writes the medium to a file, or leaves the file as it was.
func (e Enrollment) Write(ctx context.Context, name string) error {
	arch, err := architecture(e.Manager)
	if err != nil {
		return fmt.Errorf("systemd-boot: %w", err)
	}
	// It has identifiers of its own: no loader takes it for one of the fleet's media.
	m := Medium{Loader: &Loader{Arch: arch, Date: e.Date.UTC()}, Node: "keys of firmware"}
	files := []format.FATFile{held(m.Loader.fallback(), e.Manager), held("loader/loader.conf", []byte(enrolls))}
	for _, v := range []efivar.Variable{efivar.Platform, efivar.Exchange, efivar.Allowed} {
		files = append(files, held("loader/keys/auto/"+string(v)+".auth", e.Updates[v]))
	}
	return fault.In(durable.Fill(name, 0o644, func(f *os.File) error { return m.cd(ctx, f, files) }), "write %s", name)
}

// architecture returns Debian's name of that which a program is for.
func architecture(program []byte) (string, error) {
	f, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("not a program for firmware: %w", err)
	}
	switch f.Machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		return "amd64", nil
	case pe.IMAGE_FILE_MACHINE_ARM64:
		return "arm64", nil
	}
	return "", cli.Usage("amd64 and arm64 are known", "a program for machines of type %#x", f.Machine)
}
