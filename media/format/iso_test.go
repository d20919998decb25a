// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

func image() ISO {
	return ISO{Label: "CAISSON", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Boot: 70 << 20}
}

func isoMade(t *testing.T, i ISO) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "caisson.iso")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // what matters is read again
	if err := f.Truncate(i.Size()); err != nil {
		t.Fatal(err)
	}
	if err := i.Write(f); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("first bytes of the partition"), BootAt); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestIsoOthersReadIt: isoinfo and xorriso find the volume, the file and the boot entry.
func TestIsoOthersReadIt(t *testing.T) {
	require.Tool(t, "isoinfo", "xorriso")
	name := isoMade(t, image())
	for _, row := range []struct {
		command []string
		want    []string
	}{
		{[]string{"isoinfo", "-d", "-i", name}, []string{"Volume id: CAISSON\n", "El Torito VD version 1 found", "Arch 239", "Bootoff 200 512", "Nsect 0"}},
		{[]string{"isoinfo", "-l", "-i", name}, []string{"73400320 Jan  2 2026", "ESP.IMG;1"}},
		{[]string{"xorriso", "-indev", name, "-report_el_torito", "plain"}, []string{"UEFI", "Volume id    : 'CAISSON'", "/ESP.IMG"}},
		{[]string{"xorriso", "-indev", name, "-check_media", "--"}, []string{"Media region"}},
	} {
		out, err := exec.Command(row.command[0], row.command[1:]...).CombinedOutput()
		for _, want := range row.want {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v, want %q\n%s", row.command, err, want, out)
			}
		}
	}
	out, err := exec.Command("isoinfo", "-x", "/ESP.IMG;1", "-i", name).Output()
	if err != nil || len(out) != 70<<20 || !bytes.HasPrefix(out, []byte("first bytes of the partition")) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestSystemAreaIsFree: a partition table has the first sectors and the last for itself.
func TestSystemAreaIsFree(t *testing.T) {
	data, err := os.ReadFile(isoMade(t, image()))
	if err != nil {
		t.Fatal(err)
	}
	end := BootAt + 70<<20
	if len(bytes.Trim(data[:16*Sector], "\x00")) != 0 || len(bytes.Trim(data[end:], "\x00")) != 0 || len(data)-end < 33*512 {
		t.Errorf("something is in the system area, or %d bytes are too few behind the partition", len(data)-end)
	}
}

// TestLargePartition: one of 4 GiB or more is there in several extents, with all of its bytes.
func TestLargePartition(t *testing.T) {
	require.Tool(t, "isoinfo", "xorriso")
	i := image()
	i.Boot = 9<<30 + 1<<20
	name := isoMade(t, i)
	for _, row := range []struct {
		command []string
		want    []string
	}{
		{[]string{"isoinfo", "-d", "-i", name}, []string{fmt.Sprintf("Volume size is: %d", i.Size()/Sector)}},
		{[]string{"xorriso", "-indev", name, "-find", "/ESP.IMG", "-exec", "report_lba", "--"}, []string{
			fmt.Sprintf("File data lba:  0 , %8d , %8d , %d , '/ESP.IMG'", fileAt, extent/Sector, i.Boot),
			fmt.Sprintf("File data lba:  2 , %8d , %8d , %d , '/ESP.IMG'", fileAt+2*extent/Sector, (i.Boot-2*extent)/Sector, i.Boot)}},
	} {
		out, err := exec.Command(row.command[0], row.command[1:]...).CombinedOutput()
		for _, want := range row.want {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v, want %q\n%s", row.command, err, want, out)
			}
		}
	}
}

// TestTooLarge: what the format cannot say is refused.
func TestTooLarge(t *testing.T) {
	i := image()
	i.Boot = largest + Sector
	if err := i.Write(nil); err == nil || !strings.Contains(err.Error(), "a CD takes at most 137438887936") {
		t.Error(err)
	}
	i.Boot = largest
	if n := len(i.root()); n > Sector {
		t.Errorf("the folder has %d bytes", n)
	}
}
