// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
const features = "has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum,metadata_csum_seed"

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
	return m.volume(files, size).Write(io.NewOffsetWriter(m.tally(ctx, "write", of).onto(to), at))
}
