// SPDX-License-Identifier: Apache-2.0

// Package powercut says what a disk may hold after the power was cut. A test lets a
// process of its own do something to a directory, has every call of that process that
// changes files there recorded in order, and builds what each cut may leave.
//
// # The seam
//
// The calls are taken from the kernel (seccomp_unotify(2)), not from the program: no
// writer can go past it, and none has to know of it. What a call in a form that is not
// known here did is found all the same: at the end of a recording the model must hold
// what the directory holds, names, modes, content and links, or the recording fails.
// Between two files the kernel's short cuts (copy_file_range(2), sendfile(2),
// splice(2)) are refused, so that programs write instead.
//
// # The model
//
// It is weaker than what ext4, XFS and btrfs promise, so what holds here holds there.
// The power may go before the first call, between any two, and after the last. Then
//
//   - of each file there is, independently of all others, what fsync(2), fdatasync(2),
//     syncfs(2) or sync(2) had written when it was called last, with all of what was
//     written since, none of it, a beginning of it (half of the calls, and half of the
//     last of those), or as many zeros as it would have bytes. Modes, sizes and content
//     of a file go together;
//   - of each change of an entry in a directory (create, mkdir, link, symlink, rename,
//     unlink, rmdir) that no fsync(2) of that directory followed, each may be there or
//     not, independently and in any order, but for those of one name, which stay in
//     theirs. A rename(2) is one change, of both directories, and there whole or not
//     at all. An entry whose directory was synchronised may lead to a file that was
//     not, and is empty. fsync(2) of a file does not make its name last, and that of a
//     new directory does not make its own;
//   - what is mounted is gone. mount(2) and umount(2) are places to cut, too.
//
// Where a cut leaves few choices all of them are built, where it leaves many some: all
// kept, all lost, each alone kept and each alone lost, and others at random, from a
// seed. Equal results count once.
//
// A process that is killed loses nothing that it did: [Recording.Kills].
//
// Not in it: a disk that loses what it said to have written, that tears a rename, or
// whose content rots. Extended attributes and times are not looked at.
//
// Only tests import it. It needs Linux 5.7, and no privileges.
package powercut
