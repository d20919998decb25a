// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/format"
)

// A disk is laid out as the loader lays one out that it makes: a mebibyte, room for the
// partition that firmware starts from, which is more where something goes along, and the state
// partition up to the end.
const (
	mebibyte = 1 << 20
	espRoom  = 1 << 30
)

// espSize returns the size of the partition that firmware starts from, in bytes: whatever goes
// along lies there beside room for loaders, so that updates have as much of it on each disk.
func (m Medium) espSize(carried []format.FATFile) (int64, error) {
	free := cmp.Or(m.room, espRoom)
	if len(carried) == 0 {
		return free, nil
	}
	return format.FATRoom(carried, free)
}

// raw writes a disk.
func (m Medium) raw(ctx context.Context, f *os.File) error {
	files, err := m.carried()
	if err != nil {
		return err
	}
	esp, err := m.espSize(files)
	if err != nil {
		return err
	}
	stateAt, state := mebibyte+esp, (m.State+mebibyte-1)/mebibyte*mebibyte
	size := stateAt + state + mebibyte // the copy of the table comes last
	if err := f.Truncate(size); err != nil {
		return err
	}
	files = append(files, m.Loader.chosen()...)
	if err := m.writeVolume(ctx, f, mebibyte, esp, files); err != nil {
		return fmt.Errorf("EFI system partition: %w", err)
	}
	if err := m.fileSystem(ctx, f.Name(), stateAt, state); err != nil {
		return err
	}
	return m.table(
		gpt.Partition{Index: 1, Type: gpt.LinuxFilesystem, Name: paths.StateLabel, GUID: m.state().String(),
			Start: uint64(stateAt / sector), End: uint64(stateAt+state)/sector - 1},
		gpt.Partition{Index: 2, Type: gpt.EFISystemPartition, Name: paths.BootLabel, GUID: m.esp().String(),
			Start: mebibyte / sector, End: uint64(stateAt/sector) - 1},
	).Write(f, size)
}

// manages are the settings of systemd-boot, see loader.conf(5). Where no loader can be loaded it
// ends, and the firmware goes on to its next entry: with an entry of its own for the firmware's
// setup it would start that, and the machine would stay there.
const manages = "timeout 0\neditor no\nauto-firmware no\n"

// chosen are the files of a partition where a boot manager chooses among loaders.
func (l *Loader) chosen() []format.FATFile {
	return []format.FATFile{
		held(l.fallback(), l.Manager),
		held("loader/loader.conf", []byte(manages)),
		held("EFI/Linux/"+l.title(), l.Image),
	}
}

// making is how long mke2fs may take.
const making = 5 * time.Minute

// features lists the features that mke2fs.conf of Debian asks for, and metadata_csum_seed.
const features = "has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super," +
	"large_file,huge_file,dir_nlink,extra_isize,metadata_csum,metadata_csum_seed"

// fileSystem makes the state partition's. Its checksums are made from a number of their own
// (metadata_csum_seed), so that its identifier can be replaced while it is mounted.
func (m Medium) fileSystem(ctx context.Context, disk string, at, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	id := m.state().String()
	program, err := exec.LookPath("mke2fs")
	if err != nil {
		program = "/usr/sbin/mke2fs" // where those who are not root do not look
	}
	var content []string
	if m.Content != "" {
		content = []string{"-d", m.Content}
	}
	cmd := exec.CommandContext(ctx, program, append(content, "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-I",
		"256", "-L", paths.StateLabel, "-U", id, "-O", features,
		"-E", fmt.Sprintf("offset=%d,nodiscard,root_owner=0:0,hash_seed=%s", at, id), disk, fmt.Sprintf("%dk", size>>10))...)
	// It shows neither this machine's settings nor the time.
	cmd.Env = []string{"LC_ALL=C", "MKE2FS_CONFIG=/dev/null", fmt.Sprintf("E2FSPROGS_FAKE_TIME=%d", max(m.Loader.Date.Unix(), 1))}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("make the state partition: %w", context.Cause(ctx))
		}
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("make the state partition: %w; on Debian: apt install e2fsprogs", err)
		}
		return fmt.Errorf("make the state partition: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// aside writes a disk beside the file that it becomes in another form, and reads it.
func (m Medium) aside(ctx context.Context, f *os.File, convert func(disk *os.File) error) error {
	disk, err := os.CreateTemp(filepath.Dir(f.Name()), ".disk.*")
	if err != nil {
		return err
	}
	defer os.Remove(disk.Name()) // what it was for is done, or has failed
	defer disk.Close()           // what it was for is done, or has failed
	if err := m.raw(ctx, disk); err != nil {
		return err
	}
	if _, err := disk.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return convert(disk)
}

// zstd writes a disk compressed.
func (m Medium) zstd(ctx context.Context, f *os.File) error {
	return m.aside(ctx, f, func(disk *os.File) error {
		info, err := disk.Stat()
		if err != nil {
			return err
		}
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		_, err = io.Copy(z, m.tally(ctx, "compress", info.Size()).from(disk))
		return errors.Join(err, z.Close())
	})
}

// Step receives how far the writing of a medium has come: a word for what is done, and bytes of it.
type Step func(what string, done, of int64)

// pace is after how many bytes Step is called again.
const pace = 4 << 20

// tally counts the bytes of a step, for as long as somebody wants the medium.
type tally struct {
	ctx            context.Context
	step           Step
	what           string
	done, of, told int64
}

func (m Medium) tally(ctx context.Context, what string, of int64) *tally {
	return &tally{ctx: ctx, step: m.Step, what: what, of: of}
}

// add counts bytes. The error is why nobody wants the medium any more.
func (t *tally) add(n int) error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	t.done = min(t.done+int64(n), t.of) // tables and folders belong to no file
	if t.step != nil && (t.told == 0 || t.done-t.told >= pace || t.done == t.of && t.told < t.of) {
		t.told = t.done
		t.step(t.what, t.done, t.of)
	}
	return nil
}

// onto counts what is written.
func (t *tally) onto(w io.WriterAt) io.WriterAt { return counted{w: w, t: t} }

// from counts what is read.
func (t *tally) from(r io.Reader) io.Reader { return counted{r: r, t: t} }

type counted struct {
	w io.WriterAt
	r io.Reader
	t *tally
}

// WriteAt implements io.WriterAt.
func (c counted) WriteAt(p []byte, at int64) (int, error) {
	if err := c.t.add(len(p)); err != nil {
		return 0, err
	}
	return c.w.WriteAt(p, at)
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == nil {
		err = c.t.add(n)
	}
	return n, err
}

// writeVolume writes the file system of files at a byte of a medium.
func (m Medium) writeVolume(ctx context.Context, to io.WriterAt, at, size int64, files []format.FATFile) error {
	var of int64
	for _, f := range files {
		of += f.Size
	}
	return m.Loader.volume(m.esp(), size, files).Write(io.NewOffsetWriter(m.tally(ctx, "write", of).onto(to), at))
}

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
