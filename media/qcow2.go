// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
)

// Numbers of the format, see docs/interop/qcow2.rst of QEMU.
const (
	clusterBits = 16
	cluster     = 1 << clusterBits
	perTable    = cluster / 8 // clusters that one table of the second level names
	perCount    = cluster / 2 // clusters that one block of reference counts counts
	alone       = 1 << 63     // of a cluster: only one name leads to it
)

// qcow2 writes a disk as QEMU has it: clusters of zeros are left out, all others follow the
// tables in the order of the disk.
func (m Medium) qcow2(ctx context.Context, f *os.File) error {
	return m.aside(ctx, f, func(disk *os.File) error { return m.writeQcow2(ctx, f, disk) })
}

func (m Medium) writeQcow2(ctx context.Context, f, disk *os.File) error {
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	data, err := inUse(m.tally(ctx, "read", info.Size()).from(disk))
	if err != nil {
		return err
	}
	clusters := up(info.Size(), cluster)
	tables := up(clusters, perTable)
	second := map[int64][]byte{} // what a table of the first level names
	for _, n := range data {
		second[n/perTable] = nil
	}
	firstLevel := up(tables*8, cluster)
	countTable := 1 + firstLevel // one cluster of it names 8,192 blocks of counts: 16 TiB of an image
	secondAt := countTable + 1
	countsAt := secondAt + int64(len(second))
	dataAt := countsAt + 1
	for end := dataAt + int64(len(data)); up(end, perCount) > dataAt-countsAt; end++ { // the blocks count themselves
		dataAt++
	}
	first := make([]byte, firstLevel*cluster)
	at := secondAt
	for _, n := range slices.Sorted(maps.Keys(second)) {
		binary.BigEndian.PutUint64(first[n*8:], alone|uint64(at*cluster))
		table := make([]byte, cluster)
		second[n] = table
		at++
	}
	buffer := make([]byte, cluster)
	counted := m.tally(ctx, "convert", int64(len(data))*cluster).onto(f)
	for i, n := range data {
		got, err := disk.ReadAt(buffer, n*cluster)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		clear(buffer[got:])
		to := dataAt + int64(i)
		binary.BigEndian.PutUint64(second[n/perTable][n%perTable*8:], alone|uint64(to*cluster))
		if _, err := counted.WriteAt(buffer, to*cluster); err != nil {
			return err
		}
	}
	for i, n := range slices.Sorted(maps.Keys(second)) {
		if _, err := f.WriteAt(second[n], (secondAt+int64(i))*cluster); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(first, cluster); err != nil {
		return err
	}
	if err := count(f, countTable, countsAt, dataAt+int64(len(data))); err != nil {
		return err
	}
	_, err = f.WriteAt(header(info.Size(), tables, countTable), 0)
	return err
}

// inUse lists the clusters of a disk that are not zeros.
func inUse(disk io.Reader) (list []int64, err error) {
	buffer := make([]byte, cluster)
	for n := int64(0); ; n++ {
		got, err := io.ReadFull(disk, buffer)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		if len(bytes.Trim(buffer[:got], "\x00")) > 0 {
			list = append(list, n)
		}
	}
}

// count says of every cluster up to the end that it is in use once.
func count(f *os.File, table, at, end int64) error {
	names := make([]byte, cluster)
	for n := int64(0); n*perCount < end; n++ {
		binary.BigEndian.PutUint64(names[n*8:], uint64(at+n)*cluster)
		block := make([]byte, cluster)
		for i := range min(perCount, end-n*perCount) {
			block[2*i+1] = 1
		}
		if _, err := f.WriteAt(block, (at+n)*cluster); err != nil {
			return err
		}
	}
	_, err := f.WriteAt(names, table*cluster)
	return err
}

// header is that of version 2, which every reader knows.
func header(size, tables, countTable int64) []byte {
	b := make([]byte, 72)
	be := binary.BigEndian
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 2)
	be.PutUint32(b[20:], clusterBits)
	be.PutUint64(b[24:], uint64(size))
	be.PutUint32(b[36:], uint32(tables))
	be.PutUint64(b[40:], cluster)
	be.PutUint64(b[48:], uint64(countTable)*cluster)
	be.PutUint32(b[56:], 1)
	return b
}

func up(n, by int64) int64 { return (n + by - 1) / by }
