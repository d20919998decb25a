// SPDX-License-Identifier: Apache-2.0

package boot

import "testing"

// TestUEFI: the programs are found by the machine that they are for, both or none.
func TestUEFI(t *testing.T) {
	dir := UEFIDir[1:] + "/"
	for _, row := range []struct {
		arch  string
		files map[string]string
		want  []Program
	}{
		{"amd64", map[string]string{dir + "linuxx64.efi.stub": "stub", dir + "systemd-bootx64.efi": "manager"},
			[]Program{{"linuxx64.efi.stub", []byte("stub")}, {"systemd-bootx64.efi", []byte("manager")}}},
		{"arm64", map[string]string{dir + "linuxaa64.efi.stub": "stub", dir + "systemd-bootaa64.efi": "manager"},
			[]Program{{"linuxaa64.efi.stub", []byte("stub")}, {"systemd-bootaa64.efi", []byte("manager")}}},
		{"arm64", map[string]string{dir + "linuxx64.efi.stub": "stub", dir + "systemd-bootx64.efi": "manager"}, nil},
		{"amd64", map[string]string{dir + "linuxx64.efi.stub": "stub"}, nil},
		{"amd64", nil, nil},
	} {
		got, err := UEFI(layer(t, row.files), row.arch)
		if err != nil || len(got) != len(row.want) {
			t.Errorf("%s with %v: %v, %v", row.arch, row.files, got, err)
			continue
		}
		for i, p := range got {
			if p.Name != row.want[i].Name || string(p.Data) != string(row.want[i].Data) {
				t.Errorf("%s: %s %q, want %s", row.arch, p.Name, p.Data, row.want[i].Name)
			}
		}
	}
}
