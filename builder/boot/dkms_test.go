// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/test/roottest"
)

// dkms keeps the records of the real one for what its sources say: done, wrong, or byhand. It makes
// a key, as the real one does where it can sign.
const dkms = `#!/bin/sh
set -e
. /etc/dkms/framework.conf.d/*.conf
make() {
	v=${1##*/} n=${1%/*} m=/usr/lib/modules/$kernel/updates/dkms
	case $(cat /usr/src/$n-$v/dkms.conf) in
	wrong) mkdir -p $tree/$1/build; seq 100 >$tree/$1/build/make.log; echo "$n.c: no such function" >>$tree/$1/build/make.log; return 1 ;;
	refused) echo "$n is not for this kernel"; return 1 ;;
	esac
	mkdir -p $m $tree/$1/$kernel
	echo $n >$m/$n.ko
	if [ -e "$sign_file" ]; then echo key >/var/lib/dkms/mok.key; fi
	ln -s $v/$kernel $tree/$n/kernel-$kernel-x
}
tree=/var/lib/dkms verb=$1
case $verb in
add) at=${2##*/}; mkdir -p $tree/${at%-*}/${at##*-}; ln -s $2 $tree/${at%-*}/${at##*-}/source ;;
autoinstall) kernel=$3; for s in $tree/*/*/source; do case $(cat $s/dkms.conf) in done|wrong) at=${s%/source}; make ${at#$tree/} || bad=1 ;; esac; done; exit ${bad:-0} ;;
install) kernel=$7; make $3/$5 ;;
esac
`

func unsigned(module []byte) ([]byte, error) { return module, nil }

func layers(t *testing.T, headers bool, sources map[string]string) (r, scratch *root.Root) {
	t.Helper()
	files := map[string]string{"boot/vmlinuz-6.1.0-2-x": "kernel", "boot/vmlinuz-6.1.0-1-x": "older", "usr/lib/modules/6.1.0-2-x/kernel/fs/x.ko": "x",
		"usr/bin/depmod": "#!/bin/sh\nls /usr/lib/modules/$1/updates/dkms >/usr/lib/modules/$1/modules.dep\n"}
	for name, text := range sources {
		files["usr/src/"+name+"/dkms.conf"] = text
	}
	r = roottest.New(t, files)
	scratch = &root.Root{Lowers: append([]string{r.Upper}, r.Lowers...), Upper: t.TempDir(), Work: r.Work}
	tools := map[string]string{"usr/bin/dkms": dkms, "usr/bin/cc": "#!/bin/sh\n"}
	if headers {
		tools["usr/lib/modules/6.1.0-2-x/build/Makefile"] = ""
	}
	roottest.Put(t, scratch.Upper, tools)
	return r, scratch
}

// TestMake: modules alone come out of the tree that they are made in, also one that dkms makes
// only when it is told, and no key is made.
func TestMake(t *testing.T) {
	r, scratch := layers(t, true, map[string]string{"good-1": "done", "told-2.0": "byhand"})
	made, err := MakeModules(t.Context(), r, scratch, unsigned)
	if err != nil {
		t.Fatal(err)
	}
	const in = "/usr/lib/modules/6.1.0-2-x/"
	if want := []string{in + "updates/dkms/good.ko", in + "updates/dkms/told.ko"}; !slices.Equal(made, want) {
		t.Errorf("made %q, want %q", made, want)
	}
	if got, err := r.ReadFile(in + "modules.dep"); err != nil || string(got) != "good.ko\ntold.ko\n" {
		t.Errorf("the tables have %q, %v", got, err)
	}
	for _, name := range []string{"/usr/bin/dkms", "/usr/bin/cc", in + "build", "/etc/dkms", "/var/lib/dkms", "/var/lib/dkms/mok.key"} {
		if _, err := r.Lstat(name); err == nil {
			t.Errorf("%s is in the layer", name)
		}
	}
	if _, err := scratch.Lstat("/var/lib/dkms/mok.key"); err == nil {
		t.Error("a key was made")
	}
}

// TestNotMade: all that were not made are named, each with the end of its log alone.
func TestNotMade(t *testing.T) {
	r, scratch := layers(t, true, map[string]string{"good-1": "done", "broken-2.0": "wrong", "other-3": "refused"})
	_, err := MakeModules(t.Context(), r, scratch, unsigned)
	for _, want := range []string{"kernel 6.1.0-2-x", "module broken 2.0:", "broken.c: no such function", "module other 3:", "not for this kernel"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "\n80\n") || strings.Contains(err.Error(), "good")) {
		t.Errorf("it says too much: %v", err)
	}
}

func TestWithoutHeaders(t *testing.T) {
	r, scratch := layers(t, false, map[string]string{"good-1": "done"})
	if _, err := MakeModules(t.Context(), r, scratch, unsigned); err == nil || !strings.Contains(err.Error(), "linux-headers-6.1.0-2-x") {
		t.Errorf("without headers: %v", err)
	}
	if r, scratch := layers(t, false, nil); true {
		if made, err := MakeModules(t.Context(), r, scratch, unsigned); err != nil || made != nil {
			t.Errorf("without sources: %q, %v", made, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	for want, packages := range map[string][]string{
		"linux-headers-6.12.10-cloud-amd64": {"base-files", "linux-image-cloud-amd64", "linux-image-6.12.9-cloud-amd64", "linux-image-6.12.10-cloud-amd64-unsigned"},
		"proxmox-headers-6.8.12-4-pve":      {"proxmox-kernel-6.8", "proxmox-kernel-6.8.12-4-pve-signed"},
		"":                                  {"linux-image-6.1.0-1-x", "linux-headers-6.1.0-1-x"},
	} {
		if got, err := Headers(packages); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", packages, got, err, want)
		}
	}
	if _, err := Headers([]string{"linux-image-cloud-amd64", "vmlinuz"}); err == nil {
		t.Error("headers of no kernel")
	}
}
