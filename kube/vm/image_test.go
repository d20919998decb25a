// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// image pushes an image to the registry that nodes have: busybox, which is a shell and what a
// script calls, and further programs by their paths.
func (f *fleet) image(name string, programs ...string) {
	f.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, path := range programs {
		from, err := exec.LookPath(path[strings.LastIndex(path, "/")+1:])
		if err != nil {
			from = f.Bin + "/" + path[strings.LastIndex(path, "/")+1:]
		}
		data, err := os.ReadFile(from)
		f.must(err)
		f.must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, Size: int64(len(data))}))
		_, err = w.Write(data)
		f.must(err)
	}
	for _, applet := range []string{"cp", "nsenter", "rm", "sh", "sleep"} {
		f.must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"}))
	}
	f.must(w.Close())
	config, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/sleep", "infinity"}, "Env": []string{"PATH=/bin:/usr/local/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{oci.Digest(layer.Bytes())}}})
	f.must(err)
	host, _, _ := strings.Cut(f.Registry, "/")
	r, err := registry.Open(host+"/images", registry.Options{PlainHTTP: true})
	f.must(err)
	c, l := oci.Describe("application/vnd.oci.image.config.v1+json", config), oci.Describe("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	for _, blob := range []oci.Descriptor{c, l} {
		f.must(r.PutData(f.Context(), name, blob))
	}
	_, err = r.PutManifest(f.Context(), name, oci.MediaTypeManifest, oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, Config: c.Bare(), Layers: []oci.Descriptor{l.Bare()}}), "1")
	f.must(err)
}
