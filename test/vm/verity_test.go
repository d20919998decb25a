// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongVerity is a node whose kernel checks what is read from the state disk. A warm boot
// reads no image as a whole; a block that changes while the node runs is an error, the node
// says so, and the next boot ends well; so it does where what the loader itself reads has
// changed while the machine was off.
func TestLongVerity(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	o, first := f.proven(t)
	if first.ImageCheck != spec.ImagesWhenRead || first.ImageCheckDetail != "" {
		t.Fatalf("the first boot: images are checked %q: %s", first.ImageCheck, first.ImageCheckDetail)
	}

	m := f.start(t, o)
	s := f.login(t, m)
	warm := layerStep(t, s)
	images := f.overVerity(t, s)
	f.wrongBlock(t, s, images[0])
	from := m.Console.Len()
	s = f.reboot(t, m, s)
	if !strings.Contains(m.Console.String()[from:], "base: blob sha256:"+images[0]+": content does not match its digest: fetched again") {
		t.Error("the console does not say that the image was fetched again")
	}
	if st := status(t, s); st.Health != "ok" || st.ImageCheck != spec.ImagesWhenRead || st.Generation != first.Generation {
		t.Errorf("after the repair: %+v", st)
	}
	run(t, s, "echo "+images[0]+"  /var/lib/caisson/store/sha256/"+images[0]+" | sudo sha256sum --check")

	sound(t, s)
	run(t, s, "sudo rm /var/lib/caisson/store/sound; sync")
	s = f.reboot(t, m, s)
	cold := layerStep(t, s)
	t.Logf("the loader's step layer: %.0f ms when it leaves the images to the kernel, %.0f ms when it reads them: %.2f", warm, cold, warm/cold)
	if warm > cold/2 {
		t.Errorf("a boot that reads no image takes %.0f ms for its layer, one that reads them %.0f ms", warm, cold)
	}
	sound(t, s)
	run(t, s, "sync")
	m.PowerCut()

	spoil(t, o, "printf '\\377\\377' | dd of=store/sha256/"+images[0]+" bs=1 seek=64 conv=notrunc status=none") // of the superblock, which mount(2) reads
	m = f.start(t, o)
	waitFor(t, m, 0, "caisson: images are not checked while they are read")
	waitFor(t, m, 0, "fetched again")
	if st := status(t, f.login(t, m)); st.Generation != first.Generation || st.ImageCheck != spec.ImagesAtBoot || !strings.Contains(st.ImageCheckDetail, "mount image") {
		t.Errorf("after a superblock that has changed: %+v", st)
	}
}

// layerStep is how long the loader took to have the layer, in milliseconds.
func layerStep(t *testing.T, s *machine.Session) float64 {
	t.Helper()
	var trace spec.Trace
	if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent status --trace -o json")), &trace); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(trace.Boot, func(step spec.Step) bool { return step.Name == "layer" })
	if i < 0 {
		t.Fatalf("the trace has no step layer: %+v", trace.Boot)
	}
	return trace.Boot[i].Took
}

// sound waits until the agent says which images the next boot need not read.
func sound(t *testing.T, s *machine.Session) string {
	t.Helper()
	return run(t, s, "sudo sh -c 'cd /var/lib/caisson/store; until cat sound 2>/dev/null; do sleep 1; done'")
}

// overVerity holds that each image is mounted from a device of dm-verity, and returns their
// digests, the base first.
func (f *Fleet) overVerity(t *testing.T, s *machine.Session) (images []string) {
	t.Helper()
	for line := range strings.Lines(run(t, s, "grep ' squashfs ' /proc/mounts")) {
		device := strings.Fields(line)[0]
		name := run(t, s, "cat /sys/class/block/"+strings.TrimPrefix(device, "/dev/")+"/dm/name")
		digits, _, ok := strings.Cut(strings.TrimPrefix(name, "caisson-"), "-loop")
		if !strings.HasPrefix(device, "/dev/dm-") || !ok || len(digits) != 64 {
			t.Fatalf("%s is device %q", strings.TrimSpace(line), name)
		}
		images = append(images, digits)
	}
	if len(images) != 5 {
		t.Fatalf("%d images are mounted: %v", len(images), images)
	}
	return images
}

// wrongBlock changes a byte of the base's last file, and reads all of the image.
func (f *Fleet) wrongBlock(t *testing.T, s *machine.Session, image string) {
	t.Helper()
	if got := sound(t, s); !strings.Contains(got, image) {
		t.Errorf("before: sound are %q", got)
	}
	blob := "/var/lib/caisson/store/sha256/" + image
	// The data of files ends where the 8 bytes at 64 of the superblock say.
	run(t, s, fmt.Sprintf("sudo sh -c 'at=$(($(od -An -t u8 -j 64 -N 8 %[1]s) - 20000)); printf \"\\377\\000\" | dd of=%[1]s bs=1 seek=$at conv=notrunc status=none; sync; echo 3 >/proc/sys/vm/drop_caches'", blob))
	got := run(t, s, "sudo sh -c 'for d in /sys/class/block/dm-*; do case $(cat $d/dm/name) in caisson-"+image+"-*) cat /dev/${d##*/} >/dev/null;; esac; done' 2>&1; true")
	if !strings.Contains(got, "Input/output error") {
		t.Errorf("a changed block is read: %q", got)
	}
	if got := run(t, s, "sudo caisson-agent sync 2>&1 >/dev/null || [ $? -eq 1 ]"); !strings.Contains(got, "node is degraded") {
		t.Errorf("sync says:\n%s", got)
	}
	st := status(t, s)
	if st.Health != "degraded" || !strings.Contains(st.HealthDetail, "image base") {
		t.Errorf("health %s: %s", st.Health, st.HealthDetail)
	}
	if got := run(t, s, "sudo caisson-agent why || [ $? -eq 3 ]"); !strings.Contains(got, "image base") || !strings.Contains(got, "EIO") || !strings.Contains(got, "reboot: the boot reads all of it") {
		t.Errorf("why says:\n%s", got)
	}
	if got := sound(t, s); strings.Contains(got, image) {
		t.Errorf("afterwards: sound are %q", got)
	}
}
