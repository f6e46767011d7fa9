//! `toolgate.yaml`, the project file.

use crate::context::{Context, FileOwner};
use crate::file::ProjectFile;
use crate::keys::ConfigValue;
use crate::node::Node;
use crate::resolve::{ConfigBuilder, add_project_secrets};

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::Toolgate;
    add_project_secrets(node, cx);
    if let Some(file) = ProjectFile::read(node, cx) {
        builder.add_project(file, cx);
    }
}
