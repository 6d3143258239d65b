// SPDX-License-Identifier: Apache-2.0
// Removed as soon as the folder has its first source file.
