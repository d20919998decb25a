// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"os"

	"github.com/diskfs/go-diskfs/partition/gpt"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/fat"
	"github.com/caisson-os/caisson/media/iso"
)

// iso writes an image that firmware starts as a CD, and as a USB stick.
func (m Medium) iso(ctx context.Context, f *os.File) error {
	files, err := m.carried()
	if err != nil {
		return err
	}
	files = append(files, held(m.Loader.fallback(), m.Loader.Image))
	size, err := fat.Room(files, 0)
	if err != nil {
		return err
	}
	image := iso.Image{Label: paths.MediumLabel, Date: m.Loader.Date, Boot: size}
	if err := f.Truncate(image.Size()); err != nil {
		return err
	}
	if err := image.Write(f); err != nil {
		return err
	}
	if err := m.writeVolume(ctx, f, iso.BootAt, size, files); err != nil {
		return err
	}
	return m.table(gpt.Partition{Index: 1, Type: gpt.EFISystemPartition, Name: paths.BootLabel, GUID: m.esp().String(),
		Start: iso.BootAt / sector, End: (iso.BootAt+uint64(size))/sector - 1}).Write(f, image.Size())
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
